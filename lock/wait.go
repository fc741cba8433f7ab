package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// listenWait is the mean time between two attempts of a waiter that would be
// woken, in case a wake-up is lost.
const listenWait = time.Second

// outageWait is how long a waiter asks a back end that does not answer: a failover
// takes seconds, and half a minute if it is slow.
const outageWait = 30 * time.Second

// A waiter is one Acquire that waits for a lock.
type waiter struct {
	locker   *Locker
	lease    *Lease // that it is for
	resource string
	begun    time.Time
	id       string // nonce of the next attempt
	refusals int
	answered time.Time // when the back end last said that the lock is held
	line     *line     // nil while it does not wait
	place    *place    // in its line
}

func (w *waiter) request() Request {
	return Request{Resource: w.resource, Nonce: w.nonce(), Holder: w.locker.holder, TTL: w.locker.ttl}
}

// nonce returns the nonce of the next attempt. It stays the same while the lock
// is refused, so that a fair queue knows its contender again; once granted it is
// spent.
func (w *waiter) nonce() string {
	if w.id == "" {
		w.id = rand.Text()
	}
	return w.id
}

// listens reports whether a release can grant the lock to w.
func (w *waiter) listens() bool {
	return w.locker.granter != nil && w.line != nil && w.line.wake != nil
}

func (w *waiter) granted(ctx context.Context, h *hold) {
	w.id = ""
	if w.line == nil {
		return
	}
	w.lease.waited = true
	w.leave(&HeldError{Resource: w.resource, Holder: w.locker.holder, Remaining: w.locker.ttl})
	w.locker.observer.Observe(guard.Event{Kind: guard.EventWaited, Context: ctx, Fence: h.fence, Took: time.Since(w.begun)})
}

// wait returns when w is to ask the back end, with the lock if it was passed to it, or
// why it is not to wait any longer. refused is the error of its last attempt, nil
// before the first.
func (w *waiter) wait(ctx context.Context, refused error) (*hold, error) {
	if refused != nil {
		w.refusals++
		if w.locker.maxRetries >= 0 && w.refusals > w.locker.maxRetries {
			return nil, fmt.Errorf("gave up after %d attempts: %w", w.refusals, refused)
		}
	}
	if !w.queue(refused) {
		return nil, nil
	}
	var (
		timer <-chan time.Time // this and wake from when it is at the front
		wake  <-chan struct{}
	)
	for due := false; ; {
		front, ask, passed := w.look(due)
		switch {
		case passed != nil:
			w.admit(ctx, passed.to, passed.sent, passed.sent.Add(w.locker.ttl))
			return passed.to, nil
		case ask:
			return nil, nil
		case front && timer == nil:
			timer, wake = time.After(w.pause()), w.line.wake
		}
		select {
		case <-w.place.news:
		case <-timer:
			due, timer = true, time.After(w.locker.ttl) // in case a pass under way hangs
		case <-wake:
			due, w.line.live = true, true
		case <-w.locker.closing:
			return nil, w.closed()
		case <-ctx.Done():
			return nil, w.explain(ctx, ended(ctx))
		}
	}
}

// again reports whether an attempt that failed with err is to be repeated. What
// goes wrong while a lock is waited for may be a failover.
func (w *waiter) again(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, ErrHeld), errors.Is(err, errSuperseded):
		w.answered = time.Now()
		return true
	case w.refusals == 0, ctx.Err() != nil, time.Since(w.answered) > outageWait:
		return false
	}
	w.id = "" // spent: the attempt is undone
	if w.locker.fair {
		w.leave(nil)
	}
	return true
}

func (w *waiter) closed() error {
	return fmt.Errorf("%w while waiting: %w", ErrClosed, w.reason())
}

// explain adds to the error of an attempt that was cut short by the end of ctx who
// had the lock until then.
func (w *waiter) explain(ctx context.Context, err error) error {
	refused := w.reason()
	if ctx.Err() == nil || refused == nil {
		return err
	}
	err = fmt.Errorf("%w after waiting %v: %w", err, time.Since(w.begun).Round(time.Millisecond), refused)
	if held, ok := errors.AsType[*HeldError](refused); ok && held.Holder == w.locker.holder {
		err = fmt.Errorf("%w; if that is the caller itself, the call needs the context of its lease", err)
	}
	return err
}

// pause is the time to the next attempt when nothing wakes the waiter. It is not
// longer than the holder's TTL, in case the holder died.
func (w *waiter) pause() time.Duration {
	held, _ := errors.AsType[*HeldError](w.reason())
	mean := w.locker.retryWait
	if w.line.live && (held == nil || !held.Silent && held.Remaining > 0) {
		mean = max(mean, listenWait)
	}
	if w.locker.fair { // or the queue would take us for dead
		mean = min(mean, w.locker.patience()/3)
	}
	d := jitter(mean)
	if held != nil && held.Remaining > 0 {
		// Not all at the same moment, if there are many.
		d = min(d, held.Remaining+time.Millisecond+mathrand.N(w.locker.retryWait)/8)
	}
	return d
}

func jitter(mean time.Duration) time.Duration { return mean/2 + mathrand.N(mean) }

// stop ends the waiting, and leaves the queue of a fair lock that was not granted.
func (w *waiter) stop(ctx context.Context, err error) {
	defer func() { // even if the observer panics, or nobody behind w would get its turn
		w.leave(nil)
		if err != nil {
			w.withdraw()
		}
	}()
	gone := w.line == nil && errors.Is(ctx.Err(), context.Canceled) // the caller, at the first attempt: says nothing of the lock
	if err != nil && !gone && (w.line != nil || w.id != "") {       // it waited, or has asked in vain
		kind := guard.EventWaited
		if w.line == nil {
			kind = guard.EventAcquired
		}
		f := guard.Fence{Resource: w.resource, Holder: w.locker.holder}
		w.locker.observer.Observe(guard.Event{Kind: kind, Context: ctx, Fence: f, Took: time.Since(w.begun), Err: err})
	}
}

// withdraw makes the back end forget that w waits.
func (w *waiter) withdraw() {
	// A release may have granted the lock by now to one that was to ask again, even if it
	// does not listen.
	_, grants := w.locker.backend.(Granter)
	if w.id != "" && (w.locker.fair || grants && w.refusals > 0) {
		w.locker.withdraw(Request{Resource: w.resource, Nonce: w.id})
	}
}

func (l *Locker) withdraw(r Request) {
	l.detach(func(ctx context.Context) error {
		if l.fair {
			return l.backend.(FairBackend).Withdraw(ctx, r)
		}
		return l.backend.Release(ctx, r)
	})
}

// patience is how long a fair queue keeps the place of a contender that is silent:
// a few polls, and long enough for one that paused briefly.
func (l *Locker) patience() time.Duration { return max(5*l.retryWait, time.Second) }
