// Package sequencertest is the conformance suite of a sequencer.
package sequencertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
)

const (
	resource = "inventory:sku-42"
	timeout  = time.Minute // for one check
)

// Run tests a sequencer. open returns a fresh one, whose counters start near 0 and
// whose greatest jump is [sequencer.DefaultMaxJump]; it is called once for each
// subtest, from subtests that run in parallel. One check takes about 130 steps of
// the greatest jump to the end of the integers.
func Run(t *testing.T, open func(t *testing.T) sequencer.Sequencer) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if err := c.run(ctx, open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A check says how a fresh sequencer breaks the contract. Checks return errors and
// do not use testing.T, so that the tests of this package can let broken
// sequencers fail them.
type check struct {
	name string
	run  func(ctx context.Context, s sequencer.Sequencer) error
}

var checks = []check{
	{"TokensArePositiveAndGrow", grows},
	{"TokensGrowPerResource", growsPerResource},
	{"TokenIsGreaterThanAfter", exceedsAfter},
	{"ASmallAfterDoesNotTurnTheCounterBack", ignoresSmallAfter},
	{"S16_NoDuplicatesAbove2To53", above53},
	{"S40_TheCounterTakesOverFromMicroseconds", takesOver},
	{"S18_AnImplausibleJumpIsRefusedAndForgotten", refusesJump},
	{"S18_TheEndOfTheIntegersIsAnErrorForGood", exhausts},
	{"InvalidRequestsAreRefused", refusesInvalid},
	{"OddNamesAreTaken", oddNames},
	{"ADeadContextIsRefused", refusesDeadContext},
	{"ConcurrentCallersGetDistinctGrowingTokens", concurrent},
	{"ConcurrentRepairsGetDistinctGrowingTokens", concurrentRepairs},
}

// follow asks for tokens after each of afters in turn and holds every answer
// against the contract. It returns the last token.
func follow(ctx context.Context, s sequencer.Sequencer, last guard.Token, afters ...guard.Token) (guard.Token, error) {
	for _, after := range afters {
		token, err := s.Next(ctx, resource, after)
		if err != nil {
			return 0, fmt.Errorf("Next(%q, %d) after token %d: %w", resource, after, last, err)
		}
		if token <= max(last, after) {
			return 0, fmt.Errorf("Next(%q, %d) = %d after token %d, want a greater one than both", resource, after, token, last)
		}
		last = token
	}
	return last, nil
}

func grows(ctx context.Context, s sequencer.Sequencer) error {
	_, err := follow(ctx, s, 0, make([]guard.Token, 50)...)
	return err
}

func growsPerResource(ctx context.Context, s sequencer.Sequencer) error {
	last := map[string]guard.Token{}
	for i := range 60 {
		r := fmt.Sprint("order:", i%7)
		token, err := s.Next(ctx, r, 0)
		if err != nil {
			return fmt.Errorf("Next(%q, 0): %w", r, err)
		}
		if token <= last[r] {
			return fmt.Errorf("Next(%q, 0) = %d after token %d of the same resource", r, token, last[r])
		}
		last[r] = token
	}
	return nil
}

func exceedsAfter(ctx context.Context, s sequencer.Sequencer) error {
	last, err := follow(ctx, s, 0, 0, 1000, 0, 0)
	if err != nil {
		return err
	}
	// Exactly at, just below and just above the counter.
	_, err = follow(ctx, s, last, last, last, last+1, last+3, 0, last+10, 0)
	return err
}

func ignoresSmallAfter(ctx context.Context, s sequencer.Sequencer) error {
	last, err := follow(ctx, s, 0, 500)
	if err != nil {
		return err
	}
	_, err = follow(ctx, s, last, 1, 0, 99, 499, 9) // 99 and 9 are greater than 500 as text
	return err
}

func above53(ctx context.Context, s sequencer.Sequencer) error {
	const limit = guard.Token(1) << 53
	last, err := follow(ctx, s, 0, append([]guard.Token{limit - 3}, make([]guard.Token, 12)...)...)
	if err != nil {
		return err
	}
	for range 12 { // the store's token is exact too
		if last, err = follow(ctx, s, last, last+1); err != nil {
			return err
		}
	}
	return nil
}

func takesOver(ctx context.Context, s sequencer.Sequencer) error {
	_, err := follow(ctx, s, 0, 0, guard.Token(time.Now().UnixMicro()), 0, sequencer.DefaultMaxJump, 0)
	return err
}

func refusesJump(ctx context.Context, s sequencer.Sequencer) error {
	last, err := follow(ctx, s, 0, 0, 7)
	if err != nil {
		return err
	}
	for _, after := range []guard.Token{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, 2 * sequencer.DefaultMaxJump} {
		token, err := s.Next(ctx, resource, after)
		if !errors.Is(err, sequencer.ErrJump) {
			return fmt.Errorf("Next(%q, %d) with the counter at %d = %d, %w; want ErrJump", resource, after, last, token, orNil(err))
		}
	}
	token, err := follow(ctx, s, last, 0)
	if err == nil && token > last+1<<20 {
		err = fmt.Errorf("a refused jump has moved the counter from %d to %d", last, token)
	}
	return err
}

func exhausts(ctx context.Context, s sequencer.Sequencer) error {
	var last guard.Token
	var err error
	for last < math.MaxInt64 {
		after := guard.Token(math.MaxInt64 - 1)
		if last < after-sequencer.DefaultMaxJump {
			after = last + sequencer.DefaultMaxJump - sequencer.DefaultMaxJump>>20 // a sequencer may round the bound
		}
		if last, err = follow(ctx, s, last, after); err != nil {
			return err
		}
	}
	for _, after := range []guard.Token{0, last - 1, last, 0} {
		token, err := s.Next(ctx, resource, after)
		if !errors.Is(err, sequencer.ErrExhausted) {
			return fmt.Errorf("Next(%q, %d) after the last token there is = %d, %w; want ErrExhausted", resource, after, token, orNil(err))
		}
	}
	return nil
}

func refusesInvalid(ctx context.Context, s sequencer.Sequencer) error {
	for _, c := range []struct {
		resource string
		after    guard.Token
	}{
		{"", 0},
		{"a\nb", 0},
		{"a\x00b", 0},
		{"\xff", 0},
		{strings.Repeat("r", guard.MaxResource+1), 0},
		{resource, -1},
		{resource, math.MinInt64},
	} {
		if token, err := s.Next(ctx, c.resource, c.after); !errors.Is(err, guard.ErrInvalid) {
			return fmt.Errorf("Next(%.40q, %d) = %d, %w; want guard.ErrInvalid", c.resource, c.after, token, orNil(err))
		}
	}
	_, err := follow(ctx, s, 0, 0)
	return err
}

// oddNames does not ask whether the names are kept apart: resources may share a
// counter.
func oddNames(ctx context.Context, s sequencer.Sequencer) error {
	for _, name := range []string{
		"a ", " a", "{a}", "a}{b", "'a'", `"a"`, "a;--", "$1", "%s", `a\`, "*", "\u0430", "e\u0301", "\u00e9",
		strings.Repeat("r", guard.MaxResource), strings.Repeat("\u20ac", guard.MaxResource/3),
	} {
		token, err := s.Next(ctx, name, 1000)
		if err != nil {
			return fmt.Errorf("Next(%.40q, 1000): %w", name, err)
		}
		again, err := s.Next(ctx, name, 0)
		if err != nil {
			return fmt.Errorf("Next(%.40q, 0): %w", name, err)
		}
		if token <= 1000 || again <= token {
			return fmt.Errorf("Next(%.40q, 1000) = %d and then Next of 0 = %d", name, token, again)
		}
	}
	return nil
}

func refusesDeadContext(ctx context.Context, s sequencer.Sequencer) error {
	dead, cancel := context.WithCancel(ctx)
	cancel()
	token, err := s.Next(dead, resource, 0)
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a dead context got %d, %w; want context.Canceled", token, orNil(err))
	}
	_, err = follow(ctx, s, 0, 0)
	return err
}

// orNil lets %w print a nil error as one.
func orNil(err error) error {
	if err == nil {
		return errors.New("nil error")
	}
	return err
}
