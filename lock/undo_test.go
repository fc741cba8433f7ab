package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

// What has lost the reply is often not over when the attempt is to be undone.
func TestAnAttemptIsUndoneThoughTheOutageGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := locktest.NewFake()
		down := func(context.Context, lock.Request) error { return errors.New("connection reset") }
		b.After(locktest.Acquire, down)
		b.Before(locktest.Release, down)
		l := newLocker(t, b, lock.WithTTL(time.Hour))
		_, err := l.TryAcquire(t.Context(), resource)
		require.ErrorContains(t, err, "connection reset")
		time.Sleep(2 * time.Second)
		require.Equal(t, 6, b.Calls(locktest.Release))
		b.After(locktest.Acquire, nil)
		b.Before(locktest.Release, nil)
		time.Sleep(2 * time.Second)
		require.Equal(t, 7, b.Calls(locktest.Release))
		s, err := l.TryAcquire(t.Context(), resource)
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))

		b.After(locktest.Acquire, down)
		b.Before(locktest.Release, down)
		_, err = l.TryAcquire(t.Context(), resource)
		require.Error(t, err)
		begun := time.Now()
		require.NoError(t, l.Close(), "which waits for none of that")
		require.Zero(t, time.Since(begun))
	})
}

func TestAnAttemptAbandonedWithItsContextIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		resume := fake.Hang(locktest.Acquire)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := newLocker(t, fake).Acquire(ctx, resource)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun), "the caller waits for a back end that hangs")
		resume()
		synctest.Wait()
		require.Equal(t, 1, fake.Calls(locktest.Release))
		require.True(t, isFree(t, fake), "the late grant stays")
	})
}
