package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// A probed back end shows the context of each of its calls to a test, on the goroutine of
// the caller.
type probed struct {
	*memlock.Backend
	look func(ctx context.Context) error
}

func (probed) Bounded() bool { return true }

func (b *probed) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if err := b.look(ctx); err != nil {
		return 0, err
	}
	return b.Backend.Acquire(ctx, r)
}

func (b *probed) Release(ctx context.Context, r lock.Request) error {
	if err := b.look(ctx); err != nil {
		return err
	}
	return b.Backend.Release(ctx, r)
}

type valueKey struct{}

// underEachCaller runs test with a context that can end, and with one that cannot.
func underEachCaller(t *testing.T, test func(t *testing.T, ctx context.Context)) {
	t.Helper()
	ctx := context.WithValue(context.Background(), valueKey{}, "value")
	t.Run("never", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, ctx) })
	})
	t.Run("ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			test(t, ctx)
		})
	})
}

func TestTheContextOfACallEndsWithTheCall(t *testing.T) {
	underEachCaller(t, func(t *testing.T, ctx context.Context) {
		var seen []context.Context
		var children []context.Context
		b := &probed{memlock.New(), func(ctx context.Context) error {
			require.NoError(t, ctx.Err())
			_, has := ctx.Deadline()
			require.True(t, has)
			require.Equal(t, "value", ctx.Value(valueKey{}))
			child, cancel := context.WithCancel(ctx)
			t.Cleanup(cancel)
			seen, children = append(seen, ctx), append(children, child)
			return nil
		}}
		l := newLocker(t, b)
		s, err := l.Acquire(ctx, resource)
		require.NoError(t, err)
		require.NoError(t, s.Release(ctx))
		synctest.Wait()
		require.Len(t, seen, 2)
		for i, ctx := range seen {
			require.Equal(t, context.Canceled, ctx.Err())
			require.Equal(t, context.Canceled, children[i].Err())
			<-ctx.Done() // who asks only now, and who asked before
			<-children[i].Done()
		}
	})
}

func TestTheContextOfACallEndsWhenItIsGivenUp(t *testing.T) {
	underEachCaller(t, func(t *testing.T, ctx context.Context) {
		hangs := false
		b := &probed{memlock.New(), func(ctx context.Context) error {
			if !hangs {
				return nil
			}
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			<-child.Done()
			require.Error(t, ctx.Err())
			return ctx.Err()
		}}
		l := newLocker(t, b)
		s, err := l.Acquire(ctx, resource)
		require.NoError(t, err)
		hangs = true
		begun := time.Now()
		_, err = l.Acquire(ctx, "another")
		require.ErrorContains(t, err, "no answer within the TTL")
		require.Equal(t, ttl, time.Since(begun))
		begun = time.Now()
		require.ErrorIs(t, s.Release(ctx), lock.ErrUnknown)
		require.Equal(t, 5*time.Second, time.Since(begun))
	})
}

// A caller whose context ends has its call back at once.
func TestTheContextOfACallEndsWithItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &probed{memlock.New(), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		l := newLocker(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := l.Acquire(ctx, resource)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))
	})
}
