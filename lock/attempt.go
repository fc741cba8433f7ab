package lock

import (
	"context"
	"sync/atomic"
)

// attempt runs call, but returns when ctx ends even if call does not: many
// clients notice the end of a context only when their own timeout comes. call
// then goes on by itself. after runs once call has ended, and is told whether
// attempt had returned before it.
func attempt(ctx context.Context, call func(context.Context) error, after func(outlived bool)) error {
	var settled atomic.Bool // by whichever comes first, the outcome or the end of ctx
	done := make(chan error, 1)
	go func() {
		err := call(ctx)
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
	case <-ctx.Done():
		if settled.CompareAndSwap(false, true) {
			return ended(ctx)
		}
		return <-done
	}
}
