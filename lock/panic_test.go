package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

// A server recovers the panics of its handlers, and lives on.
func TestAPanicDuringAnAcquisitionLeavesNoLock(t *testing.T) {
	broken := lock.WithGuards(guardFunc(func(_ context.Context, f guard.Fence) error {
		if f.Resource == resource {
			panic("a bug in a driver")
		}
		return nil
	}))
	bug := func(kind guard.EventKind) lock.Option {
		return lock.WithObserver(func(e guard.Event) {
			if e.Kind == kind && e.Fence.Resource == resource {
				panic("a bug in an observer")
			}
		})
	}
	acquire := func(t *testing.T, l *lock.Locker) { _, _ = l.Acquire(t.Context(), resource) }
	for name, c := range map[string]struct {
		opt  lock.Option
		call func(t *testing.T, l *lock.Locker)
	}{
		"raise":               {broken, acquire},
		"observer":            {bug(guard.EventAcquired), acquire},
		"observer of a raise": {bug(guard.EventRaised), acquire},
		"one of several": {broken, func(t *testing.T, l *lock.Locker) {
			_, _ = l.AcquireAll(t.Context(), "a", resource)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := locktest.NewFake()
				l := newLocker(t, fake, c.opt, lock.WithGuards(guard.NewMemory()))
				require.Panics(t, func() { c.call(t, l) })
				synctest.Wait()
				require.True(t, isFree(t, fake))
				h, err := fake.Inspect(t.Context(), "a")
				require.NoError(t, err)
				require.Zero(t, h.Token)
			})
		})
	}
}

func TestAPanicDuringAJoinLeavesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		s := acquire(t, newLocker(t, fake))
		l := newLocker(t, fake, lock.WithGuards(guardFunc(func(context.Context, guard.Fence) error { panic("a bug") })))
		require.Panics(t, func() { _, _ = l.Join(t.Context(), s.Fence()) })
		synctest.Wait()
		require.NoError(t, s.Release(t.Context()))
		require.True(t, isFree(t, fake))
	})
}

// Of several who wait the first gives up, and its observer panics at that.
func TestAPanicOfTheObserverLeavesNobodyInTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		held := acquire(t, newLocker(t, fake))
		l := newLocker(t, fake, lock.WithObserver(func(e guard.Event) {
			if e.Err != nil {
				panic("a bug")
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			defer func() { _ = recover() }()
			_, _ = l.Acquire(ctx, resource)
		}()
		synctest.Wait()
		next := make(chan error, 1)
		go func() { next <- l.Do(t.Context(), resource, func(context.Context) error { return nil }) }()
		time.Sleep(2 * time.Second)
		require.NoError(t, held.Release(t.Context()))
		time.Sleep(time.Second)
		require.Len(t, next, 1)
		require.NoError(t, <-next)
	})
}

// A driver that hangs, whatever the context says, keeps the lock no longer than its locker
// lives.
func TestALockWhoseRaiseHangsIsNotRenewedAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, hang := locktest.NewFake(), make(chan struct{})
		l := newLocker(t, fake, lock.WithGuards(guardFunc(func(context.Context, guard.Fence) error { <-hang; return nil })))
		got := make(chan error, 1)
		go func() { _, err := l.Acquire(t.Context(), resource); got <- err }()
		time.Sleep(2 * ttl)
		require.False(t, isFree(t, fake))
		require.ErrorIs(t, l.Close(), lock.ErrUnknown)
		time.Sleep(ttl)
		require.True(t, isFree(t, fake))
		close(hang)
		require.Error(t, <-got)
	})
}
