package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

func TestAcquireWaitsForTheRelease(t *testing.T) {
	for name, open := range map[string]func() lock.Backend{
		"polling": func() lock.Backend { return locktest.NewFake() },
		"woken":   func() lock.Backend { return memlock.New() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				b := open()
				first := acquire(t, newLocker(t, b))
				time.AfterFunc(7*time.Second, func() { _ = first.Release(context.Background()) })
				begun := time.Now()
				second := acquire(t, newLocker(t, b, lock.WithObserver(r.observe)))
				waited := time.Since(begun)
				require.GreaterOrEqual(t, waited, 7*time.Second)
				require.LessOrEqual(t, waited, 7*time.Second+75*time.Millisecond)
				require.Greater(t, second.Fence().Token, first.Fence().Token)
				require.Equal(t, 1, r.count(guard.EventWaited))
				require.NoError(t, second.Release(t.Context()))
			})
		})
	}
}

func TestAcquireOutlivesADeadHolder(t *testing.T) {
	for name, open := range map[string]func() lock.Backend{
		"polling": func() lock.Backend { return locktest.NewFake() },
		"woken":   func() lock.Backend { return memlock.New() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open()
				acquire(t, newLocker(t, b, lock.WithoutRenewal())) // and is never heard of again
				begun := time.Now()
				s := acquire(t, newLocker(t, b))
				require.GreaterOrEqual(t, time.Since(begun), ttl)
				require.LessOrEqual(t, time.Since(begun), ttl+time.Second)
				require.NoError(t, s.Release(t.Context()))
			})
		})
	}
}

// However rarely a waiter asks, it asks when the holder's TTL ends.
func TestTheHoldersTTLBoundsTheWaitOfAPatientWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		acquire(t, newLocker(t, fake, lock.WithoutRenewal())) // and is never heard of again
		begun := time.Now()
		s := acquire(t, newLocker(t, fake, lock.WithRetryWait(time.Hour)))
		require.LessOrEqual(t, time.Since(begun), ttl+time.Hour/8+time.Second)
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestAcquireGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		first := acquire(t, newLocker(t, fake, lock.WithHolder("worker-1")))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := newLocker(t, fake).Acquire(ctx, resource)
		require.Equal(t, 3*time.Second, time.Since(begun))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.ErrorContains(t, err, "worker-1")
		require.ErrorContains(t, err, resource)
		require.NoError(t, first.Release(t.Context()))
	})
}

func TestACancelCauseReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		acquire(t, newLocker(t, fake))
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("shutting down")
		time.AfterFunc(time.Second, func() { cancel(why) })
		_, err := newLocker(t, fake).Acquire(ctx, resource)
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, lock.ErrHeld)
	})
}

func TestTryAcquireDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		first := acquire(t, newLocker(t, fake, lock.WithHolder("worker-1")))
		l := newLocker(t, fake)
		begun := time.Now()
		_, err := l.TryAcquire(t.Context(), resource)
		require.Zero(t, time.Since(begun))
		var held *lock.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "worker-1", held.Holder)
		require.Equal(t, ttl, held.Remaining)
		require.NoError(t, first.Release(t.Context()))
		s, err := l.TryAcquire(t.Context(), resource)
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestMaxRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		acquire(t, newLocker(t, fake))
		calls := fake.Calls(locktest.Acquire)
		_, err := newLocker(t, fake, lock.WithMaxRetries(4)).Acquire(t.Context(), resource)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 5, fake.Calls(locktest.Acquire)-calls)
	})
}

func TestALongTTLDoesNotSlowPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		first := acquire(t, newLocker(t, fake, lock.WithTTL(24*time.Hour)))
		time.AfterFunc(time.Second, func() { _ = first.Release(context.Background()) })
		begun := time.Now()
		s := acquire(t, newLocker(t, fake, lock.WithTTL(24*time.Hour)))
		require.Less(t, time.Since(begun), 1100*time.Millisecond)
		require.NoError(t, s.Release(t.Context()))
	})
}

// S21: the script ran, its reply did not arrive.
func TestS21_LostAcquireReplyLeavesNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		fake.After(locktest.Acquire, fail)
		_, err := newLocker(t, fake).Acquire(t.Context(), resource)
		require.ErrorIs(t, err, errBroken, "an error of the back end is not swallowed while waiting")
		require.NotErrorIs(t, err, lock.ErrHeld)
		fake.After(locktest.Acquire, nil)
		synctest.Wait()
		require.True(t, isFree(t, fake), "the key is left behind for a whole TTL")
	})
}

func TestAcquireIsBoundedWithoutADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		resume := fake.Hang(locktest.Acquire)
		defer resume()
		_, err := newLocker(t, fake).Acquire(t.Context(), resource)
		require.ErrorContains(t, err, "no answer within the TTL of 30s")
	})
}

func TestAcquireAllTakesAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		other, err := newLocker(t, fake).Acquire(t.Context(), "account:2")
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.AcquireAll(ctx, "account:3", "account:1", "account:2")
		require.ErrorIs(t, err, lock.ErrHeld)
		require.ErrorContains(t, err, "account:2")
		synctest.Wait()
		for _, r := range []string{"account:1", "account:3"} {
			h, err := fake.Inspect(t.Context(), r)
			require.NoError(t, err)
			require.Zero(t, h.Token, "%s stays locked", r)
		}

		require.NoError(t, other.Release(t.Context()))
		s, err := l.AcquireAll(t.Context(), "account:3", "account:1", "account:2", "account:1")
		require.NoError(t, err)
		require.Equal(t, "account:1", s.Fence().Resource)
		require.Equal(t, s.Fences(), guard.Fences(s.Context()))
		require.Len(t, s.Fences(), 3)
		require.NoError(t, s.Release(t.Context()))
		require.ErrorIs(t, context.Cause(s.Context()), lock.ErrReleased)
	})
}

func TestALeaseOverSeveralIsLostWithTheFirstLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		s, err := l.AcquireAll(t.Context(), "account:1", "account:2")
		require.NoError(t, err)
		fake.Expire("account:2")
		<-s.Lost()
		require.ErrorContains(t, context.Cause(s.Context()), "account:2")
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrLost)
		h, err := fake.Inspect(t.Context(), "account:1")
		require.NoError(t, err)
		require.Zero(t, h.Token)
	})
}

func TestDoReleasesWhateverHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		var inside context.Context
		require.NoError(t, l.Do(t.Context(), resource, func(ctx context.Context) error {
			inside = ctx
			_, ok := guard.FromContext(ctx, resource)
			require.True(t, ok, "the work's context carries the fence")
			return nil
		}))
		require.ErrorIs(t, context.Cause(inside), lock.ErrReleased)
		require.True(t, isFree(t, fake))

		require.ErrorIs(t, l.Do(t.Context(), resource, func(context.Context) error { return errBroken }), errBroken)
		require.True(t, isFree(t, fake))

		require.PanicsWithValue(t, "boom", func() {
			_ = l.Do(t.Context(), resource, func(context.Context) error { panic("boom") })
		})
		require.True(t, isFree(t, fake))

		err := l.Do(t.Context(), resource, func(ctx context.Context) error {
			fake.Expire(resource)
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, lock.ErrLost, "work that outlived its lease must not look well done")
		require.ErrorContains(t, err, "; the function had returned without an error, so what it committed stays")

		err = l.Do(t.Context(), resource, func(ctx context.Context) error {
			fake.Expire(resource)
			<-ctx.Done()
			return errBroken
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorIs(t, err, errBroken)
		require.NotContains(t, err.Error(), "committed stays")
	})
}

func TestDoRefusesANilFunctionBeforeItLocks(t *testing.T) {
	t.Parallel()
	fake := locktest.NewFake()
	err := newLocker(t, fake).Do(t.Context(), resource, nil)
	require.EqualError(t, err, `lock: do "`+resource+`": the function is nil; nothing was locked`)
	require.Zero(t, fake.Calls(locktest.Acquire))
}

func TestErrorsNameTheResourceAsItIs(t *testing.T) {
	t.Parallel()
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	l := newLocker(t, locktest.NewFake())
	_, err := l.Acquire(dead, "x")
	require.EqualError(t, err, `lock: acquire "x": context canceled`)
	_, err = l.AcquireAll(dead, "y", "x")
	require.EqualError(t, err, `lock: acquire "x", "y": context canceled`)
	require.NoError(t, l.Close())
	_, err = l.Acquire(t.Context(), "x")
	require.EqualError(t, err, `lock: acquire "x": locker is closed`)
}

func TestFairServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		first := acquire(t, newLocker(t, b, lock.WithFair()))
		order := make(chan int, 10)
		for i := range 10 {
			l := newLocker(t, b, lock.WithFair())
			go func() {
				s, err := l.Acquire(t.Context(), resource)
				if err != nil {
					t.Error(err)
					return
				}
				order <- i
				time.Sleep(time.Second)
				_ = s.Release(t.Context())
			}()
			synctest.Wait()
		}
		require.NoError(t, first.Release(t.Context()))
		for want := range 10 {
			require.Equal(t, want, <-order)
		}
		time.Sleep(time.Second)
	})
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		backend lock.Backend
		opts    []lock.Option
		says    string
	}{
		"no back end":           {nil, nil, "back end is nil"},
		"TTL 0":                 {memlock.New(), []lock.Option{lock.WithTTL(0)}, "TTL 0s"},
		"TTL below the floor":   {memlock.New(), []lock.Option{lock.WithTTL(time.Millisecond)}, "TTL 1ms is not from 10ms"},
		"TTL above the ceiling": {memlock.New(), []lock.Option{lock.WithTTL(25 * time.Hour)}, "TTL 25h0m0s"},
		"renewal too rare":      {memlock.New(), []lock.Option{lock.WithRenewEvery(30 * time.Second)}, "every 30s cannot keep a lease with a TTL of 30s"},
		"renewal negative":      {memlock.New(), []lock.Option{lock.WithRenewEvery(-1)}, "-1ns"},
		"renewal and none":      {memlock.New(), []lock.Option{lock.WithRenewEvery(time.Second), lock.WithoutRenewal()}, "exclude each other"},
		"max hold negative":     {memlock.New(), []lock.Option{lock.WithMaxHold(-time.Second)}, "-1s"},
		"max wait negative":     {memlock.New(), []lock.Option{lock.WithMaxWait(-time.Second)}, "-1s"},
		"retry wait 0":          {memlock.New(), []lock.Option{lock.WithRetryWait(0)}, "retry wait 0s"},
		"nil guard":             {memlock.New(), []lock.Option{lock.WithGuards(guard.NewMemory(), nil)}, "guard 1 is nil"},
		"holder with newline":   {memlock.New(), []lock.Option{lock.WithHolder("a\nb")}, `holder "a\nb"`},
		"holder too long":       {memlock.New(), []lock.Option{lock.WithHolder(strings.Repeat("h", 300))}, "300 bytes"},
		"fair without a queue":  {locktest.NewFake(), []lock.Option{lock.WithFair()}, "*locktest.Fake does not"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lock.New(c.backend, c.opts...)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestAcquireRefusesBadInputAtOnce(t *testing.T) {
	t.Parallel()
	fake := locktest.NewFake()
	l := newLocker(t, fake)
	for _, bad := range []string{"", "a\nb", "a\x00", strings.Repeat("r", 513), "\xff"} {
		_, err := l.Acquire(t.Context(), bad)
		require.ErrorIs(t, err, guard.ErrInvalid, "%.20q", bad)
		_, err = l.AcquireAll(t.Context(), "good", bad)
		require.ErrorIs(t, err, guard.ErrInvalid, "%.20q", bad)
	}
	_, err := l.AcquireAll(t.Context())
	require.ErrorContains(t, err, "no resources")
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Acquire(dead, resource)
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Join(t.Context(), guard.Fence{Resource: resource})
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.Zero(t, fake.Calls(locktest.Acquire), "nothing half done")
}
