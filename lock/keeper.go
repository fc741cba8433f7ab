package lock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-fencing/fencing/guard"
)

const (
	renewBatch   = 256 // locks per renewal call
	renewWorkers = 8   // renewal calls at once
)

// The keeper renews the holds of one locker and says when they are lost. It has
// one timer for all of them and no goroutine of its own: the timer's callback
// never waits, so a loss is signalled on time while every renewal hangs.
type keeper struct {
	backend  Backend
	bounded  bool // see Bounded
	every    time.Duration
	observer guard.Observer

	mu      sync.Mutex
	alarms  alarmHeap
	timer   *time.Timer
	wakeAt  time.Time // when the timer fires; zero if it has fired
	due     []*hold   // waiting for a worker
	workers int
}

func newKeeper(b Backend, c *config) *keeper {
	k := &keeper{backend: b, every: c.renewEvery, observer: c.observer}
	if c.noRenewal {
		k.every = 0
	}
	if b, ok := b.(Bounded); ok {
		k.bounded = b.Bounded()
	}
	return k
}

// keep starts to look after h, whose lock was asked for at sent.
func (k *keeper) keep(ctx context.Context, h *hold, sent time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.every > 0 {
		h.renewAt = sent.Add(k.every)
	}
	h.prolong(sent)
	k.set(&h.alarm, h.next())
	if ctx.Done() != nil {
		// The holder's work is over when its context is. If it never comes to
		// release, the lock must end with its TTL instead of living for ever.
		h.unparent = context.AfterFunc(ctx, func() { k.stopRenewing(h) })
	}
}

func (k *keeper) stopRenewing(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.renewAt = time.Time{}
	if h.index >= 0 {
		k.set(&h.alarm, h.next())
	}
}

// forget stops looking after h. The caller has the mutex.
func (k *keeper) forget(h *hold) {
	k.unset(&h.alarm)
	if h.unparent != nil {
		h.unparent()
	}
}

// join counts s as a lease of its holds. It returns why if one of them has ended
// already: a lease can be re-entered while another goroutine releases it.
func (k *keeper) join(s *Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range s.holds {
		h.leases = append(h.leases, s)
	}
	for _, h := range s.holds {
		if h.index < 0 {
			return cmp.Or(h.lost, ErrReleased)
		}
	}
	return nil
}

// leave takes s, if any, out of the leases of h. It returns true if no lease is
// left; h is forgotten then, and the caller has to free the lock.
func (k *keeper) leave(h *hold, s *Lease) (last bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.Index(h.leases, s); i >= 0 {
		h.leases = slices.Delete(h.leases, i, i+1)
	}
	if len(h.leases) > 0 {
		return false
	}
	k.forget(h)
	return true
}

// leases returns every lease of every hold.
func (k *keeper) leases() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []*Lease
	for _, a := range k.alarms {
		if a.hold != nil {
			all = append(all, a.hold.leases...)
		}
	}
	return all
}

// raising notes how to stop the raise of h if the hold is lost; nil when the raise
// has ended. It returns true if the hold is lost.
func (k *keeper) raising(h *hold, stop context.CancelCauseFunc) (lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.stopRaise = stop
	return h.lost != nil
}

// tick gives up the calls and signals the losses whose time has come, and hands out
// the renewals.
func (k *keeper) tick() {
	k.mu.Lock()
	now := time.Now()
	k.wakeAt = time.Time{}
	// Renewals that are almost due go along, so that holds which share a back
	// end drift into shared round trips.
	soon := now.Add(k.every / 16)
	var lost []*hold
	var late []*alarm
	for len(k.alarms) > 0 {
		a := k.alarms[0]
		h := a.hold
		switch {
		case h == nil && !a.at.After(now):
			k.unset(a)
			late = append(late, a)
			continue
		case h != nil && !h.deadline.After(now):
			k.lose(h, cmp.Or(h.atEnd(), errDeadline))
			lost = append(lost, h)
			continue
		case h != nil && a.at.Before(h.deadline) && !a.at.After(soon):
			h.renewing = true
			k.set(a, h.next())
			k.due = append(k.due, h)
			continue
		}
		break
	}
	k.arm()
	for k.workers < renewWorkers && k.workers*renewBatch < len(k.due) {
		k.workers++
		go k.work()
	}
	k.mu.Unlock()
	for _, a := range late {
		a.stop(a.cause)
	}
	k.announce(lost)
}

// lose marks h as lost. The caller has the mutex, and calls announce without it.
func (k *keeper) lose(h *hold, cause error) {
	h.lost = &LostError{Fence: h.fence, Cause: cause}
	k.forget(h)
}

// announce ends the contexts of lost holds. It is called without the mutex,
// because cancelling runs code of others.
func (k *keeper) announce(lost []*hold) {
	for _, h := range lost {
		k.mu.Lock()
		leases, stopRaise := slices.Clone(h.leases), h.stopRaise
		k.mu.Unlock()
		if stopRaise != nil {
			stopRaise(h.lost)
		}
		for _, s := range leases {
			s.lose(h.lost)
		}
		k.observer.Observe(guard.Event{Kind: guard.EventLost, Fence: h.fence, Err: h.lost})
	}
}

// work renews what is due until nothing is.
func (k *keeper) work() {
	for {
		k.mu.Lock()
		n := min(renewBatch, len(k.due))
		if n == 0 {
			k.workers--
			k.mu.Unlock()
			return
		}
		batch := slices.Clone(k.due[:n])
		k.due = slices.Delete(k.due, 0, n)
		// Until the first deadline of the batch: a call that has not come back by
		// then cannot save that lease, and the others get another try.
		until := batch[0].deadline
		requests := make([]Request, n)
		for i, h := range batch {
			requests[i] = h.request
			if h.deadline.Before(until) {
				until = h.deadline
			}
		}
		k.mu.Unlock()

		sent := time.Now()
		errs := k.renew(requests, until)
		k.settle(batch, errs, sent)
	}
}

// renew sends the requests and returns their outcomes, by until at the latest.
func (k *keeper) renew(requests []Request, until time.Time) []error {
	var outcome []error
	err := k.attempt(context.Background(), time.Until(until), errDeadline, func(ctx context.Context) error {
		outcome = k.send(ctx, requests)
		return nil
	}, nil)
	if err != nil { // the call is still running and may write to outcome
		return slices.Repeat([]error{err}, len(requests))
	}
	return outcome
}

func (k *keeper) send(ctx context.Context, requests []Request) []error {
	if b, ok := k.backend.(BatchRenewer); ok && len(requests) > 1 {
		return b.RenewAll(ctx, requests)
	}
	errs := make([]error, len(requests))
	for i, r := range requests {
		errs[i] = k.backend.Renew(ctx, r)
	}
	return errs
}

// settle notes the outcomes of a batch that was sent at sent.
func (k *keeper) settle(batch []*hold, errs []error, sent time.Time) {
	var lost []*hold
	events := make([]guard.Event, 0, len(batch))
	k.mu.Lock()
	for i, h := range batch {
		h.renewing = false
		if h.index < 0 { // released or lost meanwhile
			continue
		}
		events = append(events, guard.Event{Kind: guard.EventRenewed, Fence: h.fence, Took: time.Since(sent), Err: errs[i]})
		switch {
		case errors.Is(errs[i], ErrLost):
			k.lose(h, errNotOurs)
			lost = append(lost, h)
			continue
		case h.renewAt.IsZero():
		case errs[i] == nil:
			h.renewAt = sent.Add(k.every)
			h.prolong(sent)
		default:
			h.renewAt = time.Now().Add(max(time.Millisecond, min(k.every, time.Until(h.deadline))/4))
		}
		k.set(&h.alarm, h.next())
	}
	k.mu.Unlock()
	for _, e := range events {
		k.observer.Observe(e)
	}
	k.announce(lost)
}
