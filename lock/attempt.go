package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// attempt makes the call of t, and returns at its end or that of ctx even if the call
// does not. That then goes on by itself. The error for the end is tooLate. c is room
// for the context of the call.
//
// A call that may hang runs on a goroutine that can be left behind. That costs two
// switches and a fresh stack, half of a round trip to a server nearby. Calls of a
// bounded back end run where they are, as long as the last one went well.
func (k *keeper) attempt(ctx context.Context, end time.Time, tooLate error, t task, c *callContext) error {
	if time.Until(end) <= 0 {
		t.ended(false)
		return tooLate
	}
	c.begin(ctx, tooLate)
	defer c.end(nil)
	k.mu.Lock()
	k.set(&c.alarm, end)
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.unset(&c.alarm)
	}()

	if !k.bounded || k.trouble.Load() {
		return k.race(ctx, c, tooLate, t)
	}
	err := t.call(c)
	t.ended(false)
	k.note(err)
	switch {
	case err == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrLost):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	case c.Err() != nil, !time.Now().Before(c.alarm.at):
		return fmt.Errorf("%w: %w", tooLate, err)
	}
	return err
}

// note remembers whether the back end answers.
func (k *keeper) note(err error) {
	k.trouble.Store(err != nil && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrLost))
}

// race makes the call on a goroutine, and leaves it behind when callCtx ends first.
func (k *keeper) race(ctx, callCtx context.Context, tooLate error, t task) error {
	var settled atomic.Bool // by whichever comes first, the outcome or the end
	done := make(chan error, 1)
	go func() {
		err := t.call(callCtx)
		k.note(err)
		inTime := settled.CompareAndSwap(false, true)
		t.ended(!inTime)
		if inTime {
			done <- err
		}
	}()
	select {
	case err := <-done:
		return err
	case <-callCtx.Done():
	}
	switch {
	case !settled.CompareAndSwap(false, true):
		return <-done
	case ctx.Err() != nil:
		return ended(ctx)
	default:
		return tooLate
	}
}
