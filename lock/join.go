package lock

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// Join takes part in the lock that f was acquired with, in another goroutine,
// process or service: the lease has the same fence, and the last one to release
// frees the lock. The fence is raised on this locker's guards too, whose stores
// may be others than those of the one who acquired. ErrLost if f does not hold the
// lock any more. The back end must be a [Joiner].
func (l *Locker) Join(ctx context.Context, f guard.Fence) (*Lease, error) {
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("lock: join: %w", err)
	}
	if err := l.begin(ctx, "join", f.Resource); err != nil {
		return nil, err
	}
	defer l.running.Done()
	s := l.newLease()
	defer s.abandon()
	if h := l.held(ctx, f.Resource); h != nil && h.request.Nonce == f.Nonce {
		s.holds = append(s.holds, h)
		return s.begin(ctx)
	}
	if _, ok := l.backend.(Joiner); !ok {
		return nil, fmt.Errorf("lock: join %q: locks of %T cannot be shared between processes", f.Resource, l.backend)
	}
	h := l.newHold(Request{Resource: f.Resource, Nonce: f.Nonce, Holder: f.Holder, TTL: l.ttl}, f.Token, rand.Text())
	sent := time.Now()
	if l.maxHold > 0 {
		h.end = sent.Add(l.maxHold)
	}
	l.running.Add(1)
	if err := l.keeper.attempt(ctx, sent.Add(l.ttl), l.noAnswer, joining{h}, new(callContext)); err != nil {
		l.undo(h)
		return nil, fmt.Errorf("lock: join %q token %d: %w", f.Resource, f.Token, err)
	}
	s.holds = append(s.holds, h)
	l.keeper.keep(h, sent, sent.Add(l.ttl))
	if err := l.raiseAll(ctx, f); err != nil {
		return nil, fmt.Errorf("lock: join %q token %d: %w", f.Resource, f.Token, err)
	}
	return s.begin(ctx)
}
