package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// How renewals are shared out: with a BatchRenewer few calls for many locks each, without
// one many calls at once, or a lock that is slow would hold up those behind it.
const (
	renewBatch   = 256 // locks per call of RenewAll
	renewBatches = 8   // calls of it at once
	renewSingles = 32  // calls of Renew at once
)

// The keeper renews the holds of one locker and says when they are lost. It has
// one timer for all of them and no goroutine of its own: the timer's callback
// never waits, so a loss is signalled on time while every renewal hangs.
type keeper struct {
	backend  Backend
	bounded  bool        // see Bounded
	trouble  atomic.Bool // the last call got no answer
	every    time.Duration
	observer guard.Observer

	all        BatchRenewer // nil if the back end is none
	perCall    int          // locks that one call renews
	maxWorkers int

	mu      sync.Mutex
	alarms  alarmHeap
	timer   *time.Timer
	wakeAt  time.Time // when the timer fires; zero if it has fired
	due     []*hold   // waiting for a worker
	workers int
}

func newKeeper(b Backend, c *config) *keeper {
	k := &keeper{backend: b, every: c.renewEvery, observer: c.observer, perCall: 1, maxWorkers: renewSingles}
	if all, ok := b.(BatchRenewer); ok {
		k.all, k.perCall, k.maxWorkers = all, renewBatch, renewBatches
	}
	if c.noRenewal {
		k.every = 0
	}
	if b, ok := b.(Bounded); ok {
		k.bounded = b.Bounded()
	}
	return k
}

// keep starts to look after h, whose lock was asked for at sent and lives until then,
// which may be sooner than any renewal is due.
func (k *keeper) keep(h *hold, sent, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if life := until.Sub(sent); life < h.request.TTL {
		h.renewAt = sent.Add(min(k.every, life/3))
	} else if k.every > 0 {
		h.renewAt = sent.Add(k.every)
	}
	h.prolong(sent, until)
	k.set(&h.alarm, h.next())
}

// join makes s a lease of its holds, or returns why it is none: one of them has
// ended (a lease can be re-entered while another goroutine releases it), or ctx, or
// the locker. All that is one step, so that Close and a loss either find a lease
// that its caller gets, or nothing.
func (k *keeper) join(ctx context.Context, s *Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range s.holds {
		if err := h.over(); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case s.locker.isClosed():
		return ErrClosed
	}
	for _, h := range s.holds {
		h.leases = append(h.leases, s)
		if h.renewAt.IsZero() && k.every > 0 && !h.deadline.Equal(h.end) {
			h.renewAt = time.Now() // its other leases are all orphans
			k.set(&h.alarm, h.next())
		}
	}
	_, nested := ctx.Value(s.locker).(*scope)
	k.listen(ctx, s, !nested)
	return nil
}

// listen waits for the end of ctx, which is that of the outermost lease or not: contexts
// themselves need not be comparable.
func (k *keeper) listen(ctx context.Context, s *Lease, outermost bool) {
	if ctx.Done() != nil {
		s.unparent = context.AfterFunc(ctx, func() { k.orphan(ctx, s, outermost) })
	}
}

// orphan notes that the context of s has ended. The work under it is over then; if
// it never comes to release, the lock must end with its TTL instead of living for
// ever, unless another lease keeps it. The release of an outer lease ends the
// contexts below it too, but not what the inner ones are for: they have the
// lock until they release it, or the context of the outermost ends.
func (k *keeper) orphan(ctx context.Context, s *Lease, outermost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !outermost && errors.Is(context.Cause(ctx), ErrReleased) {
		if !s.released {
			k.listen(s.scope.root, s, true)
		}
		return
	}
	s.orphaned = true
	for _, h := range s.holds {
		k.stopIfOrphaned(h)
	}
}

func (k *keeper) stopIfOrphaned(h *hold) {
	if h.index < 0 || slices.ContainsFunc(h.leases, func(s *Lease) bool { return !s.orphaned }) {
		return
	}
	h.renewAt = time.Time{}
	k.set(&h.alarm, h.next())
}

// leave takes s, if any, out of the leases of h. It returns true once, if no lease
// is left: h is forgotten then, and the caller has to free the lock.
func (k *keeper) leave(h *hold, s *Lease) (last bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.Index(h.leases, s); i >= 0 {
		h.leases = slices.Delete(h.leases, i, i+1)
	}
	if s != nil && s.unparent != nil {
		s.unparent()
	}
	if len(h.leases) > 0 {
		k.stopIfOrphaned(h)
		return false
	}
	k.unset(&h.alarm)
	last = !h.left
	h.left = true
	return last
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
// has ended. It returns why the hold is over, if it is.
func (k *keeper) raising(h *hold, stop context.CancelCauseFunc) (over error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.stopRaise = stop
	return h.over()
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
	due := 0
	for len(k.alarms) > 0 {
		a := k.alarms[0]
		h := a.hold
		switch {
		case h == nil && !a.at.After(now):
			k.unset(a)
			late = append(late, a)
			continue
		case h != nil && !h.deadline.After(now):
			k.lose(h, h.expiry())
			lost = append(lost, h)
			continue
		case h != nil && a.at.Before(h.deadline) && (!a.at.After(now) || !a.at.After(soon) && due > 0):
			due++
			h.renewing = true
			k.set(a, h.next())
			k.due = append(k.due, h)
			continue
		}
		break
	}
	k.arm()
	// However many workers there are: each of them may be hanging.
	for n := len(k.due); n > 0 && k.workers < k.maxWorkers; n -= k.perCall {
		k.workers++
		go k.work()
	}
	k.mu.Unlock()
	for _, a := range late {
		a.call.end(a.call.tooLate)
	}
	k.announce(lost)
}

// lose marks h as lost. The caller has the mutex, and calls announce without it.
func (k *keeper) lose(h *hold, cause error) {
	h.lost = &LostError{Fence: h.fence, Cause: cause}
	k.unset(&h.alarm)
}

// announce ends the contexts of lost holds. It is called without the mutex,
// because cancelling runs code of others.
func (k *keeper) announce(lost []*hold) {
	for _, h := range lost {
		k.mu.Lock()
		leases, stopRaise, fence := slices.Clone(h.leases), h.stopRaise, h.fence
		leased := slices.IndexFunc(leases, func(s *Lease) bool { return !s.released })
		k.mu.Unlock()
		if stopRaise != nil {
			stopRaise(h.lost)
		}
		for _, s := range leases {
			s.lose(h.lost)
		}
		if leased >= 0 { // what nobody had, nobody has lost
			k.observer.Observe(guard.Event{Kind: guard.EventLost, Context: leases[leased].ctx, Fence: fence, Err: h.lost})
		}
	}
}

// work renews what is due until nothing is.
func (k *keeper) work() {
	for {
		batch, requests, limit := k.batch()
		if len(batch) == 0 {
			return
		}
		sent := time.Now()
		k.settle(batch, k.renew(requests, sent.Add(limit)), sent)
	}
}

// batch takes what one call renews. limit ends the call while there is time for
// another one: a call that hangs must not be the last of its leases.
func (k *keeper) batch() (batch []*hold, requests []Request, limit time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	limit = k.every
	for len(k.due) > 0 && len(batch) < k.perCall {
		h := k.due[0]
		k.due = k.due[1:]
		left := time.Until(h.deadline)
		if h.index < 0 || left <= 0 { // released or lost meanwhile
			continue
		}
		if len(h.leases) == 0 && h.locker.isClosed() { // it will be no lease, however long its raise hangs
			continue
		}
		batch, requests = append(batch, h), append(requests, h.request)
		limit = min(limit, max(left/2, time.Millisecond))
	}
	if len(batch) == 0 {
		k.due = nil
		k.workers--
	}
	return batch, requests, limit
}

// renew sends the requests and returns their outcomes, by the end.
func (k *keeper) renew(requests []Request, end time.Time) []error {
	t := &renewing{keeper: k, requests: requests}
	err := k.attempt(context.Background(), end, errRenewalHangs, t, new(callContext))
	if t.outcomes == nil {
		return slices.Repeat([]error{err}, len(requests))
	}
	return t.outcomes
}

func (k *keeper) send(ctx context.Context, requests []Request) []error {
	if len(requests) == 1 {
		return []error{k.backend.Renew(ctx, requests[0])}
	}
	return k.all.RenewAll(ctx, requests)
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
			h.failure = nil
			h.renewAt = sent.Add(k.every)
			h.prolong(sent, sent.Add(h.request.TTL))
		default:
			h.failure = errs[i]
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
