package lock

import (
	"errors"
	"fmt"
	"sync"
)

// A line is where the waiters of one locker for one resource stand, in the order
// in which they came. Only the one at its front asks the back end: a release
// brings one question from each process, not one from each goroutine that waits
// there, and nobody is overtaken by another of its process.
type line struct {
	front   chan struct{} // receives the place at the front
	wake    <-chan struct{}
	unwatch func()
	live    bool // the watch is in effect: owned by the one at the front

	// Guarded by the mutex of the lines.
	waiters int
	refused error // why the one at the front waits
	ask     bool  // the last one at the front left without the lock, perhaps with a wake-up
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
	case q != nil && !w.alone():
		w.line = q
		q.waiters++
	case refused == nil:
		return false
	default:
		w.line = w.newLine()
		if !w.alone() {
			ls.of[w.resource] = w.line
		}
	}
	w.line.refuse(refused)
	return true
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

// alone reports whether w has a line of its own: a fair back end puts all waiters
// of all processes in order, and one that counts its attempts has to make them.
func (w *waiter) alone() bool { return w.locker.fair || w.locker.maxRetries >= 0 }

func (w *waiter) newLine() *line {
	q := &line{front: make(chan struct{}, 1), waiters: 1, unwatch: func() {}}
	q.front <- struct{}{}
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

// takeFront notes that w is at the front, and returns whether it has to ask at once.
func (w *waiter) takeFront() (ask bool) {
	ls := &w.locker.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.first = true
	ask, w.line.ask = w.line.ask, false
	return ask
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
	q.waiters--
	last := q.waiters == 0
	if last && ls.of[w.resource] == q {
		delete(ls.of, w.resource)
	}
	if w.first {
		q.ask = granted == nil
		if granted != nil {
			q.refused = granted
		}
	}
	ls.mu.Unlock()
	if w.first {
		q.front <- struct{}{}
	}
	if last {
		q.unwatch()
	}
	w.line, w.first = nil, false
}
