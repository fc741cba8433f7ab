package lock

import (
	"context"
	"sync"
	"time"
)

// A callContext is that of one call. It shows the deadline that the keeper's alarm
// enforces, for a callee that hands it to the network. A timer of its own would cost
// more than the rest of the call.
type callContext struct {
	context.Context                         // the caller's; if that can end, a child of it
	cancel          context.CancelCauseFunc // of the child
	alarm           alarm                   // set before the call begins

	// Of one whose caller's cannot end. A child would cost three allocations.
	mu    sync.Mutex
	done  chan struct{} // made when somebody asks for it
	ended bool
	late  bool
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin makes c the context of a call under ctx.
func (c *callContext) begin(ctx context.Context, tooLate error) {
	c.Context, c.cancel = ctx, nil
	if ctx.Done() != nil {
		c.Context, c.cancel = context.WithCancelCause(ctx)
	}
	c.alarm = alarm{index: -1, call: c, cause: tooLate}
	c.done, c.ended, c.late = nil, false, false
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
