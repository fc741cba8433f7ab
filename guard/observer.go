package guard

import (
	"context"
	"errors"
	"time"
)

// An EventKind says what happened to a fence.
type EventKind uint8

// The kinds of events, in the order in which one acquisition can meet them. Acquired and
// released do not pair up: a lock that is given back because another one of an AcquireAll
// is held was acquired and not released, a lease that joined is released and was not
// acquired.
const (
	EventWaited    EventKind = iota + 1 // the lock was held by another; Took is the wait, Err why it ended without the lock
	EventAcquired                       // the back end granted the lock, or Err says why an acquisition that did not wait got none; Took is how long it needed
	EventRaised                         // a store took the fence; Took is how long it needed
	EventRepaired                       // a store was ahead of the sequencer; a greater token was fetched
	EventRenewed                        // the lease was prolonged, or Err says why not; Took is how long the call needed
	EventCommitted                      // a fenced transaction was committed; Remaining was left of its lease
	EventRefused                        // a store refused a fence or a write, or did not say what became of it: see Err. Took is set if it was a raise
	EventUnguarded                      // a write was let through without a fence, as its caller wished; Err says which
	EventLost                           // the lease ended before it was released; Err says why
	EventReleased                       // the lease was released, or Err says why not; Remaining was left of it
	eventEnd
)

var eventNames = [eventEnd]string{
	"unknown", "waited", "acquired", "raised", "repaired", "renewed", "committed", "refused", "unguarded", "lost", "released",
}

// String returns the kind as one lower-case word.
func (k EventKind) String() string {
	if k >= eventEnd {
		return eventNames[0]
	}
	return eventNames[k]
}

// EventKinds returns every kind there is: for the test of an observer that is to
// know them all.
func EventKinds() []EventKind {
	kinds := make([]EventKind, 0, eventEnd-1)
	for k := EventKind(1); k < eventEnd; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

// An Event is one thing that happened to a fence. Fields that do not apply are zero.
type Event struct {
	Kind  EventKind
	Fence Fence // its nonce lets whoever knows it enter and release: keep it out of logs and traces
	Took  time.Duration

	// Remaining is how much was left of the lease, by the holder's own deadline; 0
	// or less if it overran or was lost.
	Remaining time.Duration

	Err error

	// Context is that of the call which caused the event, and of a loss that of the
	// lease; the background for what a locker does by itself. Never nil, and it may
	// have ended: take values from it.
	Context context.Context
}

// An Observer is told of events as they happen. It is called on the path of the
// work, from several goroutines at once: it must be quick and must not block. Give
// it to the locker and to the guards; what both could tell is told once.
//
// Packages guardslog, guardprom and guardotel have ready ones.
type Observer func(Event)

// Observe calls the observer, if there is one.
func (o Observer) Observe(e Event) {
	if o == nil {
		return
	}
	if e.Context == nil {
		e.Context = context.Background()
	}
	o(e)
}

// Observers returns an observer that tells each of them, in this order. Those that
// are nil are left out; nil if none is left.
func Observers(observers ...Observer) Observer {
	var all []Observer
	for _, o := range observers {
		if o != nil {
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(e Event) {
		for _, o := range all {
			o.Observe(e)
		}
	}
}

// The methods below are for guards of stores.

// Raised tells of a raise that has ended, with [EventRaised] or, if err is not nil,
// [EventRefused]. It tells nothing where the caller does: see [Observed].
func (o Observer) Raised(ctx context.Context, f Fence, took time.Duration, err error) {
	if o == nil || isObserved(ctx) {
		return
	}
	e := Event{Kind: EventRaised, Context: ctx, Fence: f, Took: took, Err: err}
	if err != nil {
		e.Kind = EventRefused
	}
	o.Observe(e)
}

// Refused tells of a refused write with [EventRefused]. The fence is the one that
// err names.
func (o Observer) Refused(ctx context.Context, err error) {
	if o == nil {
		return
	}
	e := Event{Kind: EventRefused, Context: ctx, Err: err}
	if stale, ok := errors.AsType[*StaleError](err); ok {
		e.Fence = stale.Held
	} else if absent, ok := errors.AsType[*NotRaisedError](err); ok {
		e.Fence = absent.Held
	}
	o.Observe(e)
}

// Committed tells of a transaction that was committed under held, with
// [EventCommitted], if ctx is that of a lease: see [Deadline].
func (o Observer) Committed(ctx context.Context, held []Fence) {
	if o == nil {
		return
	}
	deadline, ok := Deadline(ctx)
	if !ok {
		return
	}
	e := Event{Kind: EventCommitted, Context: ctx, Remaining: time.Until(deadline)}
	if len(held) == 1 {
		e.Fence = held[0]
	}
	o.Observe(e)
}

type observedKey struct{}

// Observed returns a context for a raise of which the caller tells its observer
// itself, so that a guard with an observer does not tell of it again.
func Observed(ctx context.Context) context.Context {
	return context.WithValue(ctx, observedKey{}, true)
}

func isObserved(ctx context.Context) bool { return ctx.Value(observedKey{}) != nil }
