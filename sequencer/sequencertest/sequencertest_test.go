package sequencertest_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
	"github.com/go-fencing/fencing/sequencer/sequencertest"
)

// rules are what a sequencer does. Those that are not set are the right ones.
type rules struct {
	validate func(ctx context.Context, resource string, after guard.Token) error
	advance  func(last, after guard.Token) (token, kept guard.Token, err error)
	key      func(resource string) string
	racy     bool
}

// A model is a sequencer of which each rule can be broken.
type model struct {
	rules
	mu   sync.Mutex
	last map[string]guard.Token
}

func (m *model) Next(ctx context.Context, resource string, after guard.Token) (guard.Token, error) {
	validate, advance, key := m.validate, m.advance, m.key
	if validate == nil {
		validate = valid
	}
	if advance == nil {
		advance = good
	}
	if key == nil {
		key = func(resource string) string { return resource }
	}
	if err := validate(ctx, resource, after); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = make(map[string]guard.Token)
	}
	last := m.last[key(resource)]
	if m.racy {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	token, kept, err := advance(last, after)
	m.last[key(resource)] = kept
	return token, err
}

func valid(ctx context.Context, resource string, after guard.Token) error {
	return errors.Join(sequencer.Validate(resource, after), ctx.Err())
}

func good(last, after guard.Token) (token, kept guard.Token, err error) {
	token, err = sequencer.Advance(last, after, sequencer.DefaultMaxJump)
	if err != nil {
		return 0, last, err
	}
	return token, token, nil
}

// double rounds like a Lua number.
func double(t guard.Token) guard.Token { return guard.Token(min(float64(t), math.MaxInt64-1024)) }

func TestAGoodSequencerPasses(t *testing.T) {
	t.Parallel()
	require.Empty(t, sequencertest.Failing(t.Context(), func() sequencer.Sequencer { return new(model) }))
	// Like Redis: few counters for many resources.
	sequencertest.Run(t, func(*testing.T) sequencer.Sequencer {
		return &model{rules: rules{key: func(resource string) string { return string('a' + rune(len(resource)%26)) }}}
	})
}

func TestBrokenSequencersAreCaught(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		broken   rules
		caughtBy []string
	}{
		"hands out one token twice": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				token, _, err := good(last, after)
				return token, max(last, token-token%2), err
			}},
			[]string{"TokensArePositiveAndGrow", "TokensGrowPerResource", "ConcurrentCallersGetDistinctGrowingTokens"},
		},
		"begins at 0": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				token, kept, err := good(last, after)
				return token - 1, kept, err
			}},
			[]string{"TokensArePositiveAndGrow", "TokenIsGreaterThanAfter"},
		},
		"ignores after": {
			rules{advance: func(last, _ guard.Token) (guard.Token, guard.Token, error) { return good(last, 0) }},
			[]string{"TokenIsGreaterThanAfter", "S40_TheCounterTakesOverFromMicroseconds", "ConcurrentRepairsGetDistinctGrowingTokens"},
		},
		"returns after itself": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				if after > last {
					return good(last, after-1)
				}
				return good(last, after)
			}},
			[]string{"TokenIsGreaterThanAfter"},
		},
		"sets the counter to after": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				if after > 0 {
					last = after
				}
				return good(last, after)
			}},
			[]string{"ASmallAfterDoesNotTurnTheCounterBack"},
		},
		"compares as text": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				if after.String() > last.String() {
					last = after
				}
				return good(last, 0)
			}},
			[]string{"ASmallAfterDoesNotTurnTheCounterBack"},
		},
		"counts in doubles": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				token, _, err := good(last, after)
				if err != nil {
					return 0, last, err
				}
				return double(token), token, nil // as INCR through Lua: the counter is right, the reply is not
			}},
			[]string{"S16_NoDuplicatesAbove2To53"},
		},
		"refuses microseconds": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				if after-last > 1<<40 {
					return 0, last, sequencer.ErrJump
				}
				return good(last, after)
			}},
			[]string{"S40_TheCounterTakesOverFromMicroseconds"},
		},
		"takes any jump": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				token, err := sequencer.Advance(last, after, math.MaxInt64)
				return token, max(token, last), err
			}},
			[]string{"S18_AnImplausibleJumpIsRefusedAndForgotten"},
		},
		"refuses a jump and remembers it": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				token, kept, err := good(last, after)
				if err != nil {
					kept = max(last, after-sequencer.DefaultMaxJump)
				}
				return token, kept, err
			}},
			[]string{"S18_AnImplausibleJumpIsRefusedAndForgotten"},
		},
		"has another error for a jump": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				token, kept, err := good(last, after)
				if errors.Is(err, sequencer.ErrJump) {
					err = errors.New("implausible jump")
				}
				return token, kept, err
			}},
			[]string{"S18_AnImplausibleJumpIsRefusedAndForgotten"},
		},
		"starts again at the end": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				token, kept, err := good(last, after)
				if errors.Is(err, sequencer.ErrExhausted) {
					return 1, 1, nil
				}
				return token, kept, err
			}},
			[]string{"S18_TheEndOfTheIntegersIsAnErrorForGood"},
		},
		"overflows": {
			rules{advance: func(last, after guard.Token) (guard.Token, guard.Token, error) {
				if after-last > sequencer.DefaultMaxJump {
					return good(last, after)
				}
				token := max(last, after) + 1
				return token, token, nil
			}},
			[]string{"S18_TheEndOfTheIntegersIsAnErrorForGood"},
		},
		"takes every name": {
			rules{validate: func(ctx context.Context, _ string, after guard.Token) error { return valid(ctx, "r", after) }},
			[]string{"InvalidRequestsAreRefused"},
		},
		"takes a negative after": {
			rules{validate: func(ctx context.Context, r string, _ guard.Token) error { return valid(ctx, r, 0) }},
			[]string{"InvalidRequestsAreRefused"},
		},
		"refuses long names": {
			rules{validate: func(ctx context.Context, r string, after guard.Token) error {
				if len(r) > 255 {
					return guard.ErrInvalid
				}
				return valid(ctx, r, after)
			}},
			[]string{"OddNamesAreTaken"},
		},
		"works on a dead context": {
			rules{validate: func(_ context.Context, r string, after guard.Token) error { return sequencer.Validate(r, after) }},
			[]string{"ADeadContextIsRefused"},
		},
		"reads and writes in two steps": {
			rules{racy: true},
			[]string{"ConcurrentCallersGetDistinctGrowingTokens"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := sequencertest.Failing(t.Context(), func() sequencer.Sequencer { return &model{rules: c.broken} })
			for _, check := range c.caughtBy {
				require.Error(t, failed[check], "%s passed; failed: %v", check, failed)
			}
		})
	}
}
