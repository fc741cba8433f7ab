package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

func TestADayOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		s := acquire(t, l)
		token := s.Fence()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.NoError(t, s.Context().Err())
		require.False(t, isLost(s))
		require.Equal(t, token, s.Fence(), "renewal never changes the fence")
		require.InDelta(t, 24*time.Hour/(10*time.Second), fake.Calls(locktest.Renew), 2)
		require.NoError(t, s.Release(t.Context()))
		calls := fake.Calls(locktest.Renew)
		time.Sleep(time.Hour)
		require.Equal(t, calls, fake.Calls(locktest.Renew), "the keeper outlives the release")
		require.True(t, isFree(t, fake))
	})
}

func TestLossExactlyAtTheDeadlineWhileRenewalsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		begun := time.Now()
		s := acquire(t, l)
		require.Equal(t, begun.Add(ttl-margin), s.Deadline())
		fake.Before(locktest.Renew, fail)

		time.Sleep(ttl - margin - 1)
		synctest.Wait()
		require.NoError(t, s.Context().Err(), "one nanosecond before the deadline")
		require.Greater(t, fake.Calls(locktest.Renew), 2, "a failed renewal is tried again")
		time.Sleep(1 * time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(s.Context()), lock.ErrLost)
		require.True(t, isLost(s))
		require.False(t, isFree(t, fake), "the loss is signalled before a rival can get in")
	})
}

func TestLossOnTimeWhileTheBackendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		s := acquire(t, l)
		resume := fake.Hang(locktest.Renew)
		<-s.Lost()
		require.Equal(t, s.Deadline(), time.Now())
		require.ErrorIs(t, context.Cause(s.Context()), lock.ErrLost)

		resume()
		synctest.Wait()
		require.ErrorIs(t, context.Cause(s.Context()), lock.ErrLost, "a late renewal does not resurrect the lease")
		time.Sleep(ttl)
		synctest.Wait()
		require.True(t, isFree(t, fake), "the keeper goes on renewing what is lost")
		err := s.Release(t.Context())
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

func TestDeadlineCountsFromSendNotFromReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		fake.After(locktest.Acquire, func(context.Context, lock.Request) error { time.Sleep(4 * time.Second); return nil })
		l := newLocker(t, fake)
		begun := time.Now()
		s := acquire(t, l)
		require.Equal(t, begun.Add(ttl-margin), s.Deadline())
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestRenewalMovesTheDeadlineFromItsSendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		begun := time.Now()
		s := acquire(t, l)
		fake.After(locktest.Renew, func(context.Context, lock.Request) error { time.Sleep(3 * time.Second); return nil })
		time.Sleep(14 * time.Second)
		synctest.Wait()
		require.Equal(t, begun.Add(10*time.Second+ttl-margin), s.Deadline())
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestLossAtOnceWhenTheBackendSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		s := acquire(t, l)
		fake.Expire(resource)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, isLost(s), "the first renewal finds out")
		require.ErrorIs(t, context.Cause(s.Context()), lock.ErrLost)
	})
}

func TestReleaseSaysByHowMuchItOverran(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake, lock.WithoutRenewal())
		s := acquire(t, l)
		time.Sleep(ttl - margin + 1500*time.Millisecond)
		fake.Before(locktest.Release, func(context.Context, lock.Request) error { time.Sleep(time.Second); return nil }) // not the holder's fault
		err := s.Release(t.Context())
		var lost *lock.LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, 1500*time.Millisecond, lost.Overran)
		require.ErrorContains(t, err, "overran its deadline by 1.5s")
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrReleased)
	})
}

func TestADeadParentContextEndsTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := l.Acquire(ctx, resource)
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		require.ErrorIs(t, s.Context().Err(), context.Canceled)
		require.False(t, isLost(s), "the lock is still held while the work winds down")
		calls := fake.Calls(locktest.Renew)
		time.Sleep(ttl)
		synctest.Wait()
		require.Equal(t, calls, fake.Calls(locktest.Renew), "a forgotten lease is not renewed for ever")
		require.True(t, isFree(t, fake), "it ends with its TTL")
		require.True(t, isLost(s))
	})
}

func TestReleaseWorksOnADeadContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := l.Acquire(ctx, resource)
		require.NoError(t, err)
		cancel()
		require.NoError(t, s.Release(ctx))
		require.True(t, isFree(t, fake))
		require.False(t, isLost(s), "released is not lost")
	})
}

func TestReleaseIsBoundedWhileTheBackendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		s := acquire(t, l)
		resume := fake.Hang(locktest.Release)
		defer resume()
		begun := time.Now()
		err := s.Release(t.Context())
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.NotErrorIs(t, err, lock.ErrLost)
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.ErrorIs(t, context.Cause(s.Context()), lock.ErrReleased)
	})
}

func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake, lock.WithMaxHold(95*time.Second))
		begun := time.Now()
		s := acquire(t, l)
		<-s.Lost()
		require.Equal(t, 95*time.Second, time.Since(begun))
		require.ErrorContains(t, context.Cause(s.Context()), "longest time")
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrLost)
		require.True(t, isFree(t, fake))
	})
}

func TestWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake, lock.WithoutRenewal())
		begun := time.Now()
		s := acquire(t, l)
		<-s.Lost()
		require.Equal(t, ttl-margin, time.Since(begun))
		require.Zero(t, fake.Calls(locktest.Renew))
	})
}

func TestAShortTTLIsStillRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, locktest.NewFake(), lock.WithTTL(lock.MinTTL))
		s := acquire(t, l)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.False(t, isLost(s))
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestTenThousandLeasesShareTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		before := runtime.NumGoroutine()
		leases := make([]*lock.Lease, 10_000)
		for i := range leases {
			s, err := l.Acquire(context.Background(), fmt.Sprintf("%s:%d", resource, i))
			require.NoError(t, err)
			leases[i] = s
		}
		synctest.Wait()
		var mu sync.Mutex
		most := 0
		fake.Before(locktest.Renew, func(context.Context, lock.Request) error {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, runtime.NumGoroutine())
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.GreaterOrEqual(t, fake.Calls(locktest.Renew), 5*10_000)
		// The workers, a call of each, and what is on its way out.
		require.LessOrEqual(t, most-before, 100, "goroutines while 10,000 leases are renewed")
		for _, s := range leases {
			require.False(t, isLost(s))
			require.NoError(t, s.Release(t.Context()))
		}
	})
}

func TestEventsOfOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := newLocker(t, locktest.NewFake(), lock.WithObserver(r.observe), lock.WithGuards(guard.NewMemory()))
		s := acquire(t, l)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.NoError(t, s.Release(t.Context()))
		for kind, want := range map[guard.EventKind]int{
			guard.EventAcquired: 1, guard.EventRaised: 1, guard.EventRenewed: 1, guard.EventReleased: 1,
			guard.EventLost: 0, guard.EventWaited: 0, guard.EventRepaired: 0,
		} {
			require.Equal(t, want, r.count(kind), kind.String())
		}
	})
}
