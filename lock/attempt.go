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
func (k *keeper) attempt(ctx context.Context, limit time.Duration, tooLate error, call func(context.Context) error, after func(outlived bool)) error {
	end := time.Now().Add(limit)
	if !k.bounded {
		return k.race(ctx, end, tooLate, call, after)
	}
	err := call(deadlineContext{ctx, end})
	if after != nil {
		after(false)
	}
	switch {
	case err == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrLost):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	case !time.Now().Before(end):
		return fmt.Errorf("%w: %w", tooLate, err)
	}
	return err
}

// race is attempt for a back end that may hang: the call runs on a goroutine that
// can be left behind. That costs two switches and a fresh stack, which is a third
// of a round trip to a server nearby.
func (k *keeper) race(ctx context.Context, end time.Time, tooLate error, call func(context.Context) error, after func(outlived bool)) error {
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

	var settled atomic.Bool // by whichever comes first, the outcome or the end
	done := make(chan error, 1)
	go func() {
		err := call(callCtx)
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

// A deadlineContext has a deadline but no timer, for a callee that hands the
// deadline to the network. To start a timer for every call costs more than that.
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
