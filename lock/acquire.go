package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// errSuperseded: the lock went to another between its grant and the raise.
var errSuperseded = fmt.Errorf("%w while its fence was raised", ErrLost)

func (l *Locker) acquire(ctx context.Context, resources []string, wait bool) (*Lease, error) {
	if err := l.begin(ctx, "acquire", resources...); err != nil {
		return nil, err
	}
	defer l.running.Done()
	for {
		s, err := l.acquireOnce(ctx, resources, wait)
		// A lock that was lost while the next one was waited for.
		if wait && errors.Is(err, ErrLost) && ctx.Err() == nil {
			continue
		}
		return s, err
	}
}

func (l *Locker) acquireOnce(ctx context.Context, resources []string, wait bool) (*Lease, error) {
	s := &Lease{locker: l}
	s.holds = s.single[:0]
	for _, r := range resources {
		h := l.held(ctx, r)
		if h == nil {
			var err error
			if h, err = l.take(ctx, r, wait); err != nil {
				l.drop(s.holds...)
				return nil, fmt.Errorf("lock: acquire %q: %w", r, err)
			}
		}
		s.holds = append(s.holds, h)
	}
	return s.begin(ctx)
}

// held returns the hold of resource that ctx has through one of its leases. One
// that has ended does not count: a context may outlive its lease.
func (l *Locker) held(ctx context.Context, resource string) *hold {
	around, _ := ctx.Value(l).(*scope)
	if around == nil {
		return nil
	}
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	for _, h := range around.holds {
		if h.request.Resource == resource && h.index >= 0 {
			return h
		}
	}
	return nil
}

// take acquires one lock and raises its fence, waiting for it if asked to.
func (l *Locker) take(ctx context.Context, resource string, wait bool) (h *hold, err error) {
	w := &waiter{locker: l, resource: resource, begun: time.Now()}
	defer func() { w.stop(ctx, err) }()
	for refused := error(nil); ; {
		if wait {
			if h, err = w.wait(ctx, refused); err != nil {
				return nil, err
			}
		}
		if h == nil {
			h = w.claim(ctx)
		}
		if h == nil {
			h, err = l.propose(ctx, w.request(), w.listens())
		}
		if err == nil {
			w.granted(ctx, h)
			if err = l.secure(ctx, h); err == nil {
				return h, nil
			}
			l.drop(h)
			if !errors.Is(err, errSuperseded) {
				return nil, w.explain(ctx, err)
			}
		}
		if !wait || !w.again(ctx, err) {
			return nil, w.explain(ctx, err)
		}
		refused = err
	}
}

// propose asks the back end for the lock once.
func (l *Locker) propose(ctx context.Context, r Request, listens bool) (*hold, error) {
	sent := time.Now()
	h, err := l.call(ctx, r, listens, sent)
	if err == nil {
		l.admit(ctx, h, sent, sent.Add(l.ttl))
	}
	return h, err
}

// claim returns the hold of a lock that a release has granted to w, nil if none has.
func (w *waiter) claim(ctx context.Context) *hold {
	if !w.listens() {
		return nil
	}
	token, until, ok := w.locker.granter.Claim(w.request())
	if !ok {
		return nil
	}
	h := w.locker.newHold(w.request(), token, "")
	w.locker.admit(ctx, h, time.Now(), until)
	return h
}

// admit begins to look after h, which was granted to a call that was sent at sent, and
// lives until then.
func (l *Locker) admit(ctx context.Context, h *hold, sent, until time.Time) {
	if l.maxHold > 0 {
		h.end = sent.Add(l.maxHold)
	}
	l.keeper.keep(h, sent, until)
	l.observer.Observe(guard.Event{Kind: guard.EventAcquired, Context: ctx, Fence: h.fence, Took: time.Since(sent)})
}

// call makes one Acquire, which is sent now. It returns by the end of ctx or of the TTL,
// after which a grant would be worthless.
func (l *Locker) call(ctx context.Context, r Request, listens bool, sent time.Time) (*hold, error) {
	h := l.newHold(r, 0, "")
	h.listens = listens
	l.running.Add(1)
	if err := l.keeper.attempt(ctx, sent.Add(l.ttl), l.noAnswer, acquiring{h}, new(callContext)); err != nil {
		return nil, err
	}
	return h, nil
}

func (l *Locker) send(ctx context.Context, h *hold) (guard.Token, error) {
	switch {
	case l.fair:
		return l.backend.(FairBackend).AcquireInTurn(ctx, h.request, l.patience())
	case h.listens:
		return l.granter.AcquireWaiting(ctx, h.request)
	}
	return l.backend.Acquire(ctx, h.request)
}

// undo takes back, in the background, whatever was done for h.
func (l *Locker) undo(h *hold) {
	l.detach(func(ctx context.Context) { _ = releasing{h}.call(ctx) })
}

// drop gives up holds that got no lease. Those that other leases share stay.
func (l *Locker) drop(holds ...*hold) {
	for _, h := range holds {
		if l.keeper.leave(h, nil) {
			l.undo(h)
		}
	}
}
