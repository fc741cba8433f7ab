package sequencer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-fencing/fencing/guard"
)

// Memory is a sequencer in the memory of one process, for tests and for programs
// of one process. It keeps a counter per resource for as long as it lives.
type Memory struct {
	maxJump guard.Token
	mu      sync.Mutex
	last    map[string]guard.Token
}

var _ Sequencer = (*Memory)(nil)

// An Option configures a [Memory].
type Option func(*Memory)

// WithMaxJump bounds how far after may be ahead of a counter. Defaults to
// [DefaultMaxJump].
func WithMaxJump(d guard.Token) Option { return func(m *Memory) { m.maxJump = d } }

// NewMemory returns a sequencer whose counters start at 0. It returns an error if
// the bound of a jump is not positive.
func NewMemory(opts ...Option) (*Memory, error) {
	m := &Memory{maxJump: DefaultMaxJump, last: make(map[string]guard.Token)}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("sequencer: an option is nil")
		}
		opt(m)
	}
	if m.maxJump <= 0 {
		return nil, fmt.Errorf("sequencer: greatest jump %d is not positive", m.maxJump)
	}
	return m, nil
}

// Next implements [Sequencer].
func (m *Memory) Next(ctx context.Context, resource string, after guard.Token) (guard.Token, error) {
	if err := Validate(resource, after); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("sequencer: next %q: %w", resource, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	token, err := Advance(m.last[resource], after, m.maxJump)
	if err != nil {
		return 0, fmt.Errorf("sequencer: next %q: %w", resource, err)
	}
	m.last[resource] = token
	return token, nil
}
