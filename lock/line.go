package lock

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A line is where the waiters of one locker for one resource stand, in the order
// in which they came. Only the one at its front asks the back end: a release
// brings one question from each process, not one from each goroutine that waits
// there, and nobody is overtaken by another of its process. A release of this locker
// brings not even that where the back end is a [Passer].
type line struct {
	wake    <-chan struct{}
	unwatch func()
	live    bool // the watch is in effect: owned by the one at the front

	// Guarded by the mutex of the lines.
	places  list.List // *place; a lock is passed to the first, whether or not its goroutine has run yet
	refused error     // why the one at the front waits
	ask     bool      // the last one at the front left without the lock, perhaps with a wake-up
}

// A place is that of a waiter in a line: what others see of it. (The waiter itself
// stays on the stack of an Acquire that need not wait.)
type place struct {
	element *list.Element // in the line
	news    chan struct{} // receives when the place comes to the front, and when the pass to it has ended

	// Guarded by the mutex of the lines.
	request Request // the waiter's next one
	asking  bool    // the waiter makes it, or is about to: nobody can pass the lock to it
	pass    *pass   // of the lock to the waiter
}

// lines are those of one locker.
type lines struct {
	mu sync.Mutex
	of map[string]*line // by resource
}

// queue puts w into a line and returns true. Before its first attempt, when
// refused is nil, it does so only behind others.
func (w *waiter) queue(refused error) bool {
	ls := &w.locker.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch q := ls.of[w.resource]; {
	case w.line != nil:
	case q != nil && !w.locker.alone():
		w.join(q)
	case refused == nil:
		return false
	default:
		w.join(w.newLine())
		if !w.locker.alone() {
			ls.of[w.resource] = w.line
		}
	}
	w.place.request, w.place.asking = w.request(), false
	w.line.refuse(refused)
	return true
}

// join puts w at the end of q. The caller has the mutex.
func (w *waiter) join(q *line) {
	w.line, w.place = q, &place{news: make(chan struct{}, 1)}
	w.place.element = q.places.PushBack(w.place)
}

// first returns the place at the front, nil if nobody waits. The caller has the mutex.
func (q *line) first() *place {
	if front := q.places.Front(); front != nil {
		return front.Value.(*place)
	}
	return nil
}

// tell makes the waiter look again.
func (p *place) tell() {
	select {
	case p.news <- struct{}{}:
	default: // it is about to
	}
}

// refuse notes why the one at the front waits. An error of the back end does not
// tell who has the lock, so that the last holder known stays.
func (q *line) refuse(reason error) {
	held, known := errors.AsType[*HeldError](q.refused)
	switch {
	case reason == nil:
	case errors.Is(reason, ErrHeld) || !known:
		q.refused = reason
	default:
		q.refused = fmt.Errorf("%w; asked again: %w", held, reason)
	}
}

// alone reports whether every waiter has a line of its own: a fair back end puts all
// waiters of all processes in order, and one that counts its attempts has to make them.
func (l *Locker) alone() bool { return l.fair || l.maxRetries >= 0 }

func (w *waiter) newLine() *line {
	q := &line{unwatch: func() {}}
	b, ok := w.locker.backend.(Waiter)
	if ok && w.locker.maxRetries < 0 {
		r := Request{Resource: w.resource}
		if w.locker.fair {
			r.Nonce = w.nonce()
		}
		q.wake, q.unwatch = b.Watch(r)
	}
	return q
}

// look returns whether w is at the front, and whether it is to ask now: because it is
// due, or of how the one before it left, or of what came of a pass. passed is set if
// that got it the lock.
func (w *waiter) look(due bool) (front, ask bool, passed *pass) {
	ls := &w.locker.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q, p := w.line, w.place
	front = q.first() == p
	if p.pass != nil {
		if ask, passed = w.settle(time.Now()); passed != nil {
			return front, false, passed
		}
	}
	if p.pass == nil && front && (due || ask || q.ask) {
		p.asking, q.ask = true, false
	}
	return front, p.asking, nil
}

// reason returns why w waits, nil if it does not.
func (w *waiter) reason() error {
	if w.line == nil {
		return nil
	}
	ls := &w.locker.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.line.refused
}

// leave takes w out of its line. granted is nil if it leaves without the lock.
func (w *waiter) leave(granted error) {
	q := w.line
	if q == nil {
		return
	}
	ls := &w.locker.lines
	ls.mu.Lock()
	first := q.first() == w.place
	q.places.Remove(w.place.element)
	next := q.first()
	if next == nil && ls.of[w.resource] == q {
		delete(ls.of, w.resource)
	}
	if first {
		q.ask = granted == nil
		if granted != nil {
			q.refused = granted
		}
		if next != nil {
			next.tell()
		}
	}
	if w.place.pass != nil {
		w.place.pass.disown()
	}
	ls.mu.Unlock()
	if next == nil {
		q.unwatch()
	}
	w.line, w.place = nil, nil
}
