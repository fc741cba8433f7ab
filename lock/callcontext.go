package lock

import (
	"context"
	"sync"
	"time"
)

// A callContext is that of one call, and of no other. It shows the deadline that the
// keeper's alarm enforces, for a callee that hands it to the network. A timer of its own
// would cost more than the rest of the call.
type callContext struct {
	context.Context                         // the caller's; if that can end, a child of it
	cancel          context.CancelCauseFunc // of the child
	alarm           alarm                   // set before the call begins
	tooLate         error                   // why the alarm ends it

	// Of one whose caller's cannot end. A child would cost three allocations.
	mu    sync.Mutex
	done  chan struct{} // made when somebody asks for it
	after *afterFunc
	ended bool
	late  bool
}

// An afterFunc is run when the context has ended; the next one as well.
type afterFunc struct {
	run  func()
	next *afterFunc
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin makes c the context of a call under ctx.
func (c *callContext) begin(ctx context.Context, tooLate error) {
	c.Context, c.tooLate = ctx, tooLate
	if ctx.Done() != nil {
		c.Context, c.cancel = context.WithCancelCause(ctx)
	}
	c.alarm = alarm{index: -1, call: c}
}

// end ends c: with a cause if the call is given up, without one if it is over.
func (c *callContext) end(cause error) {
	if c.cancel != nil {
		c.cancel(cause)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.late = true, cause != nil
	if c.done != nil {
		close(c.done)
	}
	for ; c.after != nil; c.after = c.after.next {
		go c.after.run()
	}
}

// AfterFunc is what package context looks for, so that a child of c needs no goroutine to
// end with it.
func (c *callContext) AfterFunc(f func()) (stop func() bool) {
	if c.cancel != nil {
		return context.AfterFunc(c.Context, f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		go f()
		return func() bool { return false }
	}
	a := &afterFunc{f, c.after}
	c.after = a
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for p := &c.after; *p != nil; p = &(*p).next {
			if *p == a {
				*p = a.next
				return true
			}
		}
		return false
	}
}

func (c *callContext) Done() <-chan struct{} {
	if c.cancel != nil {
		return c.Context.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.done != nil:
	case c.ended:
		return closed
	default:
		c.done = make(chan struct{})
	}
	return c.done
}

// Err is context.DeadlineExceeded for a call that is given up, if the caller's context
// cannot end, and context.Canceled if it can, with the reason as its cause.
func (c *callContext) Err() error {
	if c.cancel != nil {
		return c.Context.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.late:
		return context.DeadlineExceeded
	case c.ended:
		return context.Canceled
	}
	return nil
}

func (c *callContext) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.alarm.at) {
		return d, true
	}
	return c.alarm.at, true
}
