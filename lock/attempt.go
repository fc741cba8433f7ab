package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// attempt runs call, and returns when ctx or limit ends even if call does not.
// call then goes on by itself. after, if any, runs once call has ended, and is told
// whether attempt had returned before it. The error for the limit is tooLate.
//
// A call that may hang runs on a goroutine that can be left behind. That costs two
// switches and a fresh stack, half of a round trip to a server nearby. Calls of a
// bounded back end run where they are, as long as the last one went well.
func (k *keeper) attempt(ctx context.Context, limit time.Duration, tooLate error, call func(context.Context) error, after func(outlived bool)) error {
	if limit <= 0 {
		if after != nil {
			after(false)
		}
		return tooLate
	}
	end := time.Now().Add(limit)
	callCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := &alarm{index: -1, stop: stop, cause: tooLate}
	k.mu.Lock()
	k.set(a, end)
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.unset(a)
	}()

	if !k.bounded || k.trouble.Load() {
		return k.race(ctx, deadlineContext{callCtx, end}, tooLate, call, after)
	}
	err := call(deadlineContext{callCtx, end})
	if after != nil {
		after(false)
	}
	k.note(err)
	switch {
	case err == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrLost):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	case callCtx.Err() != nil, !time.Now().Before(end):
		return fmt.Errorf("%w: %w", tooLate, err)
	}
	return err
}

// note remembers whether the back end answers.
func (k *keeper) note(err error) {
	k.trouble.Store(err != nil && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrLost))
}

// race runs call on a goroutine, and leaves it behind when callCtx ends first.
func (k *keeper) race(ctx, callCtx context.Context, tooLate error, call func(context.Context) error, after func(outlived bool)) error {
	var settled atomic.Bool // by whichever comes first, the outcome or the end
	done := make(chan error, 1)
	go func() {
		err := call(callCtx)
		k.note(err)
		inTime := settled.CompareAndSwap(false, true)
		if after != nil {
			after(!inTime)
		}
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

// A deadlineContext shows the deadline that the keeper's alarm enforces, for a
// callee that hands it to the network. A timer of its own would cost more than the
// rest of the call.
type deadlineContext struct {
	context.Context
	end time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.end) {
		return d, true
	}
	return c.end, true
}
