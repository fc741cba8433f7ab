package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// A Lease is a lock, or several, while they are held. Its methods are safe for
// concurrent use.
type Lease struct {
	locker *Locker
	holds  []*hold
	single [1]*hold // room for one, as there mostly is
	scope  scope
	ctx    context.Context
	cancel context.CancelCauseFunc
	waited bool // for one of its locks
	begun  bool // it is counted in its holds

	// Guarded by the keeper's mutex.
	lost     error
	gone     chan struct{} // made when somebody asks for it
	released bool
	orphaned bool        // the context it was acquired with has ended
	unparent func() bool // stops listening for that
}

// A scope is a context that carries what re-entry needs to know, for its locker.
type scope struct {
	context.Context
	locker *Locker
	holds  []*hold         // of the lease, then those of the leases around it
	root   context.Context // the one that the outermost lease was acquired with
}

func (s *scope) Value(key any) any {
	if key == s.locker {
		return s
	}
	return s.Context.Value(key)
}

func (l *Locker) newLease() *Lease {
	s := &Lease{locker: l}
	s.holds = s.single[:0]
	return s
}

// abandon gives up what s has if it became no lease. It is deferred: a panic of a guard or
// the observer, which the caller may survive, must leave no lock that is renewed for ever.
func (s *Lease) abandon() {
	if s.begun {
		return
	}
	for _, h := range s.holds {
		s.locker.drop(h, s)
	}
}

// begin makes s, which has nothing but its holds, a lease that is counted in them.
func (s *Lease) begin(ctx context.Context) (*Lease, error) {
	l := s.locker
	s.scope = scope{ctx, l, s.holds, ctx}
	if outer, ok := ctx.Value(l).(*scope); ok {
		s.scope.holds, s.scope.root = slices.Concat(s.holds, outer.holds), outer.root
	}
	fences := make([]guard.Fence, 0, 1) // not kept
	for _, h := range s.holds {
		fences = append(fences, h.fence)
	}
	s.ctx, s.cancel = context.WithCancelCause(guard.NewContext(guard.WithDeadline(&s.scope, s), fences...))

	if err := l.keeper.join(ctx, s); err != nil {
		s.cancel(err)
		if tooSlow(err) && !s.waited {
			err = fmt.Errorf("%w: %w", errTooSlow, err)
		}
		return nil, fmt.Errorf("lock: acquire %q: %w", s.holds[0].request.Resource, err)
	}
	s.begun = true
	return s, nil
}

// Fence returns the fence of the lease; of AcquireAll's, that of the first
// resource in sorted order. It never changes and is the same on re-entry.
func (s *Lease) Fence() guard.Fence { return s.holds[0].fence }

// Fences returns the fence of every resource of the lease, sorted by resource.
func (s *Lease) Fences() []guard.Fence {
	fences := make([]guard.Fence, len(s.holds))
	for i, h := range s.holds {
		fences[i] = h.fence
	}
	return fences
}

// Context returns the context for the work under the lease: a child of the one
// given to Acquire, with the lease's fences. It ends with cause ErrLost at the
// deadline or as soon as the loss is known, and with cause ErrReleased at release.
func (s *Lease) Context() context.Context { return s.ctx }

// Lost returns a channel that is closed when the lease is lost. It outlives the
// context, for clean-up that must go on after it.
func (s *Lease) Lost() <-chan struct{} { return s.signal() }

func (s *Lease) signal() chan struct{} {
	s.locker.keeper.mu.Lock()
	defer s.locker.keeper.mu.Unlock()
	if s.gone == nil {
		s.gone = make(chan struct{})
	}
	return s.gone
}

// Deadline returns when the lease must be presumed lost unless it is renewed
// before, by the monotonic clock (which on Linux stands still while the machine is
// suspended). It is advisory: only the store's check is a guard, since any pause
// can come after a look at the clock.
func (s *Lease) Deadline() time.Time {
	s.locker.keeper.mu.Lock()
	defer s.locker.keeper.mu.Unlock()
	d := s.holds[0].deadline
	for _, h := range s.holds[1:] {
		if h.deadline.Before(d) {
			d = h.deadline
		}
	}
	return d
}

// Release ends the lease and, with the last lease of a hold, frees the lock, or passes
// it to the next of this locker's goroutines that wait for it (see [Passer]). It
// works on a dead context and takes about 5s at most. It returns nil, a *LostError
// if the lease was lost before, or ErrUnknown if the back end did not answer: the
// lock then ends with its TTL. A second call returns ErrReleased.
func (s *Lease) Release(ctx context.Context) error {
	now := time.Now()
	return s.release(context.WithoutCancel(ctx), now, now.Add(releaseTimeout))
}

func (s *Lease) release(ctx context.Context, begun, end time.Time) error {
	k := s.locker.keeper
	k.mu.Lock()
	if s.released {
		k.mu.Unlock()
		return fmt.Errorf("lock: release %q: %w", s.Fence().Resource, ErrReleased)
	}
	s.released = true
	k.mu.Unlock()
	s.cancel((*releasedLease)(s))
	if len(s.holds) == 1 {
		return s.locker.release(ctx, s.holds[0], s, begun, end)
	}
	errs := make([]error, len(s.holds))
	var all sync.WaitGroup // together, so that one that hangs does not take the others' time
	for i, h := range s.holds {
		all.Go(func() { errs[i] = s.locker.release(ctx, h, s, begun, end) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// A releasedLease is the ErrReleased of a lease, with its name.
type releasedLease Lease

func (s *releasedLease) Error() string {
	return fmt.Sprintf("lock: lease of %q is released", s.holds[0].fence.Resource)
}

func (s *releasedLease) Is(target error) bool { return target == ErrReleased }

// release takes s out of h and frees the lock, or passes it on, if it was the last lease.
func (l *Locker) release(ctx context.Context, h *hold, s *Lease, begun, end time.Time) error {
	last := l.keeper.leave(h, s)
	var err error
	if last {
		err = l.free(ctx, h, begun, end)
	}
	l.keeper.mu.Lock()
	lost, deadline := h.lost, h.deadline
	l.keeper.mu.Unlock()
	remaining := deadline.Sub(begun)
	switch {
	case lost != nil, errors.Is(err, ErrLost):
		remaining = min(remaining, 0) // it was lost before, whatever the deadline said
		e := &LostError{Fence: h.fence, Cause: errNotOurs, Overran: max(0, -deadline.Sub(begun))}
		if before, ok := errors.AsType[*LostError](lost); ok {
			e.Cause = before.Cause
		}
		err = e
	case err != nil:
		err = fmt.Errorf("lock: release %q: %w, it frees itself within %v: %w", h.fence.Resource, ErrUnknown, l.ttl, err)
	}
	if last {
		l.observer.Observe(guard.Event{Kind: guard.EventReleased, Context: ctx, Fence: h.fence, Took: time.Since(begun), Remaining: remaining, Err: err})
	}
	return err
}

// lose ends the lease because of err.
func (s *Lease) lose(err error) {
	k := s.locker.keeper
	k.mu.Lock()
	first := s.lost == nil && !s.released
	if first {
		s.lost = err
	}
	k.mu.Unlock()
	if first {
		s.cancel(err) // first: who hears of the loss finds the context ended
		close(s.signal())
	}
}
