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

// A waiter is one Acquire between its attempts.
type waiter struct {
	locker   *Locker
	resource string
	begun    time.Time
	id       string // nonce of the next attempt
	refusals int
	refused  error // the last one
	watching bool
	wake     <-chan struct{}
	unwatch  func()
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

func (w *waiter) granted(h *hold) {
	w.id = ""
	if w.refusals > 0 {
		w.locker.observer.Observe(guard.Event{Kind: guard.EventWaited, Fence: h.fence, Took: time.Since(w.begun)})
	}
}

// wait returns when another attempt makes sense, or why there is none. refused is
// the error of the last one.
func (w *waiter) wait(ctx context.Context, refused error) error {
	w.refusals++
	w.refused = refused
	if w.locker.maxRetries >= 0 && w.refusals > w.locker.maxRetries {
		return fmt.Errorf("gave up after %d attempts: %w", w.refusals, refused)
	}
	if again, err := w.watch(ctx); again || err != nil {
		return err
	}
	timer := time.NewTimer(w.pause(refused))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.wake:
		return nil
	case <-w.locker.closing:
		return fmt.Errorf("%w while waiting: %w", ErrClosed, refused)
	case <-ctx.Done():
		return w.explain(ctx, ended(ctx))
	}
}

// explain adds to the error of an attempt that was cut short by the end of ctx who
// had the lock until then.
func (w *waiter) explain(ctx context.Context, err error) error {
	if ctx.Err() == nil || w.refused == nil {
		return err
	}
	return fmt.Errorf("%w after waiting %v: %w", err, time.Since(w.begun).Round(time.Millisecond), w.refused)
}

// watch begins to listen for releases. again is true the first time: the lock may
// have been released before, and nobody would wake us.
func (w *waiter) watch(ctx context.Context) (again bool, err error) {
	b, ok := w.locker.backend.(Waiter)
	if !ok || w.watching {
		return false, nil
	}
	wake, unwatch, err := b.Watch(ctx, w.resource)
	if err != nil {
		return false, w.explain(ctx, fmt.Errorf("watch: %w", err))
	}
	w.watching, w.wake, w.unwatch = true, wake, unwatch
	return true, nil
}

// pause is the time to the next attempt when nothing wakes the waiter: jittered
// polling, or with a watch the end of the holder's TTL, in case the holder died
// or its release went unheard.
func (w *waiter) pause(refused error) time.Duration {
	d := w.locker.retryWait/2 + mathrand.N(w.locker.retryWait)
	held, ok := errors.AsType[*HeldError](refused)
	if !ok || held.Remaining <= 0 {
		return d
	}
	if !w.watching {
		return min(d, held.Remaining+time.Millisecond)
	}
	d = max(d, min(held.Remaining, w.locker.ttl)) // a clock that was set can make it hours
	if w.locker.fair {                            // or the queue would take us for dead
		d = min(d, w.locker.patience()/2)
	}
	return d
}

// stop ends the watch, and leaves the queue of a fair lock that was not granted.
func (w *waiter) stop(err error) {
	if w.watching {
		w.unwatch()
	}
	if err != nil && w.locker.fair && w.id != "" {
		r := Request{Resource: w.resource, Nonce: w.id}
		w.locker.detach(func(ctx context.Context) { _ = w.locker.backend.(FairBackend).Withdraw(ctx, r) })
	}
}

// patience is how long a fair queue keeps the place of a contender that is silent:
// a few polls, and long enough for one that paused briefly.
func (l *Locker) patience() time.Duration { return max(5*l.retryWait, time.Second) }
