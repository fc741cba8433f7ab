package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
)

var (
	// errSuperseded: the lock went to another between its grant and the raise.
	errSuperseded = fmt.Errorf("%w while its fence was raised", ErrLost)

	// errTooSlow: it went to nobody. The next try would end in the same way.
	errTooSlow = errors.New("to acquire it and to raise its fence took longer than it may be held (see WithMaxHold, and WithTTL where nothing is renewed)")
)

func (l *Locker) acquire(ctx context.Context, resources []string, wait bool) (*Lease, error) {
	if err := l.begin(ctx, "acquire", resources...); err != nil {
		return nil, err
	}
	defer l.running.Done()
	until := ctx // the end of the wait
	if wait && l.maxWait > 0 {
		over := fmt.Errorf("the %v of WithMaxWait are over: %w", l.maxWait, context.DeadlineExceeded)
		bound, cancel := context.WithTimeoutCause(ctx, l.maxWait, over)
		defer cancel()
		until = bound
	}
	for {
		s, err := l.acquireOnce(ctx, until, resources, wait)
		// A lock that was lost while the next one was waited for.
		if wait && errors.Is(err, ErrLost) && !errors.Is(err, errTooSlow) && until.Err() == nil {
			continue
		}
		return s, err
	}
}

func (l *Locker) acquireOnce(ctx, until context.Context, resources []string, wait bool) (*Lease, error) {
	s := l.newLease()
	defer s.abandon()
	for _, r := range resources {
		if h := l.held(ctx, r); h != nil {
			s.holds = append(s.holds, h)
		} else if err := l.take(until, s, r, wait); err != nil {
			return nil, fmt.Errorf("lock: acquire %q: %w", r, err)
		}
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
		if h.request.Resource == resource && h.over() == nil {
			return h
		}
	}
	return nil
}

// take acquires one lock for s and raises its fence, waiting for it if asked to.
func (l *Locker) take(ctx context.Context, s *Lease, resource string, wait bool) (err error) {
	w := &waiter{locker: l, lease: s, resource: resource, begun: time.Now()}
	defer func() { w.stop(ctx, err) }()
	for refused := error(nil); ; {
		var h *hold
		if wait {
			if h, err = w.wait(ctx, refused); err != nil {
				return err
			}
		}
		if h == nil {
			h = w.claim(ctx)
		}
		if h == nil {
			h, err = w.propose(ctx)
		}
		if err == nil {
			w.granted(ctx, h)
			if err = l.secure(ctx, h); err == nil {
				return nil
			}
			s.holds = s.holds[:len(s.holds)-1]
			l.drop(h, s)
			if !errors.Is(err, errSuperseded) {
				return w.explain(ctx, err)
			}
		}
		if !wait || !w.again(ctx, err) {
			return w.explain(ctx, err)
		}
		refused = err
	}
}

// propose asks the back end for the lock once.
func (w *waiter) propose(ctx context.Context) (*hold, error) {
	sent := time.Now()
	h, err := w.locker.call(ctx, w.request(), w.listens(), sent)
	if err == nil {
		w.admit(ctx, h, sent, sent.Add(w.locker.ttl))
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
	w.admit(ctx, h, time.Now(), until)
	return h
}

// admit begins to look after h, which was granted to a call that was sent at sent, and
// lives until then. From now on the lease that w is for has it, or gives it up.
func (w *waiter) admit(ctx context.Context, h *hold, sent, until time.Time) {
	l := w.locker
	if l.maxHold > 0 {
		h.end = sent.Add(l.maxHold)
	}
	w.lease.holds = append(w.lease.holds, h)
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
	l.detach(func(ctx context.Context) error { return releasing{h}.call(ctx) })
}

// drop takes s, which became no lease, out of h, and gives that up unless other leases
// share it.
func (l *Locker) drop(h *hold, s *Lease) {
	if l.keeper.leave(h, s) {
		l.undo(h)
	}
}
