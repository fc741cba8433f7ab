package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

// The wait has an end, and the work none.
func TestMaxWaitBoundsTheWaitAlone(t *testing.T) {
	for name, open := range map[string]func() lock.Backend{
		"polling": func() lock.Backend { return locktest.NewFake() },
		"woken":   func() lock.Backend { return memlock.New() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 700 * time.Millisecond
				b := open()
				first := acquire(t, newLocker(t, b))
				l := newLocker(t, b, lock.WithMaxWait(most), lock.WithHolder("another"))
				begun := time.Now()
				_, err := l.AcquireAll(t.Context(), "free", resource)
				require.Equal(t, most, time.Since(begun))
				require.ErrorIs(t, err, lock.ErrHeld)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "the 700ms of WithMaxWait are over")
				require.NotContains(t, err.Error(), "the caller itself")

				time.AfterFunc(most/2, func() { _ = first.Release(context.Background()) })
				require.NoError(t, l.Do(t.Context(), resource, func(ctx context.Context) error {
					time.Sleep(10 * most)
					inner, err := l.Acquire(ctx, resource)
					require.NoError(t, err)
					require.NoError(t, inner.Release(ctx))
					_, ends := ctx.Deadline()
					require.False(t, ends)
					return ctx.Err()
				}))
			})
		})
	}
}

func TestAWaitForOneselfSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), lock.WithMaxWait(time.Second))
		require.ErrorContains(t, l.Do(t.Context(), resource, func(context.Context) error {
			return l.Do(t.Context(), resource, func(context.Context) error { return nil })
		}), "if that is the caller itself, the call needs the context of its lease")
	})
}

func TestAReleasedLeaseHasAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := acquire(t, newLocker(t, memlock.New()))
		require.NoError(t, s.Release(t.Context()))
		require.EqualError(t, context.Cause(s.Context()), `lock: lease of "`+resource+`" is released`)
	})
}
