package guard

import "time"

// An EventKind says what happened to a fence.
type EventKind uint8

// The kinds of events, in the order in which one acquisition can meet them.
const (
	EventWaited   EventKind = iota + 1 // the lock was held by another; Took is the wait so far
	EventAcquired                      // the back end granted the lock
	EventRaised                        // a store took the fence; Took is how long it needed
	EventRepaired                      // a store was ahead of the sequencer; a greater token was fetched
	EventRenewed                       // the lease was prolonged
	EventRefused                       // a store refused a fence or a write; Err says which
	EventLost                          // the lease ended before it was released
	EventReleased                      // the lease was released
)

var eventNames = [...]string{"unknown", "waited", "acquired", "raised", "repaired", "renewed", "refused", "lost", "released"}

// String returns the kind as one lower-case word.
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return eventNames[0]
	}
	return eventNames[k]
}

// An Event is one thing that happened to a fence. Fields that do not apply are zero.
type Event struct {
	Kind  EventKind
	Fence Fence
	Took  time.Duration
	Err   error
}

// An Observer is told of events as they happen. It is called on the path of the
// work, from several goroutines at once: it must be quick and must not block.
type Observer func(Event)

// Observe calls the observer, if there is one.
func (o Observer) Observe(e Event) {
	if o != nil {
		o(e)
	}
}
