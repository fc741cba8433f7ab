// Package sequencedlock gives the locks of a back end without tokens those of a
// sequencer, in the locker's order, so that lock/locktest can check the back end.
package sequencedlock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

// A Backend has the locks of the Backend in it. Make one with [New].
type Backend struct {
	lock.Backend
	seq    sequencer.Sequencer
	mu     sync.Mutex
	tokens map[string]guard.Token // by nonce
}

// New returns a back end with tokens.
func New(b lock.Backend, s sequencer.Sequencer) *Backend {
	return &Backend{Backend: b, seq: s, tokens: make(map[string]guard.Token)}
}

// Acquire takes the lock, draws a token, and makes sure that it still has the lock.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if _, err := b.Backend.Acquire(ctx, r); err != nil {
		return 0, err
	}
	key := r.Resource + "\n" + r.Nonce
	b.mu.Lock()
	token := b.tokens[key]
	b.mu.Unlock()
	if token > r.After {
		return token, nil
	}
	token, err := b.seq.Next(ctx, r.Resource, r.After)
	if err != nil {
		return 0, err
	}
	if err := b.Renew(ctx, r); errors.Is(err, lock.ErrLost) {
		return 0, &lock.HeldError{Resource: r.Resource}
	} else if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens[key] = token
	return token, nil
}
