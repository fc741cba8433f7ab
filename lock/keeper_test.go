package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

// One call that hangs must not take the other leases with it, nor its own.
func TestARenewalThatHangsOnceLosesNothing(t *testing.T) {
	for _, gap := range []time.Duration{0, time.Millisecond, 70 * time.Millisecond, 3 * time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := locktest.NewFake()
				l := newLocker(t, fake)
				var leases []*lock.Lease
				for i := range 10 {
					s, err := l.Acquire(t.Context(), fmt.Sprint(resource, i))
					require.NoError(t, err)
					leases = append(leases, s)
					time.Sleep(gap)
				}
				release := make(chan struct{})
				var calls atomic.Int32
				fake.Before(locktest.Renew, func(context.Context, lock.Request) error {
					if calls.Add(1) == 1 {
						<-release // whatever its context says
					}
					return nil
				})
				time.Sleep(2 * ttl)
				synctest.Wait()
				for i, s := range leases {
					require.False(t, isLost(s), "lease %d", i)
				}
				close(release)
			})
		})
	}
}

// Without RenewAll a healthy back end some way off, and one lock that it does not renew,
// are no reason to lose many others.
func TestManyLeasesOfABackendThatRenewsOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, struct{ lock.Backend }{fake})
		var leases []*lock.Lease
		for i := range 1000 {
			s, err := l.Acquire(t.Context(), fmt.Sprint(resource, i))
			require.NoError(t, err)
			leases = append(leases, s)
		}
		fake.Before(locktest.Renew, func(ctx context.Context, r lock.Request) error {
			if r.Resource == leases[0].Fence().Resource {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(20 * time.Millisecond)
			return nil
		})
		time.Sleep(3*ttl - time.Second) // between two rounds
		synctest.Wait()
		for i, s := range leases {
			require.Equal(t, i == 0, isLost(s), "lease %d", i)
		}
	})
}

func TestTheLossSaysWhyTheRenewalsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		s := acquire(t, newLocker(t, fake))
		fake.Before(locktest.Renew, fail)
		<-s.Lost()
		require.ErrorIs(t, context.Cause(s.Context()), errBroken)
	})
}

func TestCloseAndReleaseOfManyAreBoundedWhileTheBackendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l, err := lock.New(fake)
		require.NoError(t, err)
		s, err := l.AcquireAll(t.Context(), "a", "b", "c")
		require.NoError(t, err)
		for i := range 100 {
			_, err := l.Acquire(t.Context(), fmt.Sprint(resource, i))
			require.NoError(t, err)
		}
		resume := fake.Hang(locktest.Release)
		begun := time.Now()
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrUnknown)
		require.Equal(t, 5*time.Second, time.Since(begun))
		begun = time.Now()
		require.ErrorIs(t, l.Close(), lock.ErrUnknown)
		require.LessOrEqual(t, time.Since(begun), 6*time.Second)
		resume()
	})
}

// A guard whose raise succeeds just as the hold is lost.
func TestALossWhileTheFenceIsRaisedIsNoRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		g := guardFunc(func(ctx context.Context, _ guard.Fence) error { <-ctx.Done(); return nil })
		l := newLocker(t, fake, lock.WithGuards(g), lock.WithoutRenewal(), lock.WithObserver(func(guard.Event) {}))
		_, err := l.TryAcquire(t.Context(), resource)
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

func TestTheEndOfTheContextInTheMiddleOfAPollStillNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		acquire(t, newLocker(t, fake, lock.WithHolder("worker-1")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		fake.Before(locktest.Acquire, func(context.Context, lock.Request) error {
			if d, _ := ctx.Deadline(); time.Until(d) < 500*time.Millisecond {
				time.Sleep(time.Second)
			}
			return nil
		})
		_, err := newLocker(t, fake).Acquire(ctx, resource)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.ErrorContains(t, err, "worker-1")
	})
}

// Clean-up after a lease runs on a context that still carries it.
func TestAContextThatOutlivedItsLeaseAcquiresAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		s := acquire(t, l)
		detached := context.WithoutCancel(s.Context())
		require.NoError(t, s.Release(t.Context()))
		again, err := l.Acquire(detached, resource)
		require.NoError(t, err)
		require.NotEqual(t, s.Fence(), again.Fence())
		fake.Expire(resource)
		<-again.Lost()
		third, err := l.Acquire(context.WithoutCancel(again.Context()), resource)
		require.NoError(t, err)
		require.NoError(t, third.Release(t.Context()))
	})
}

func TestALiveInnerLeaseIsRenewedAfterTheOuterContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		ctx, cancel := context.WithCancel(t.Context())
		outer, err := l.Acquire(ctx, resource)
		require.NoError(t, err)
		inner, err := l.Acquire(context.WithoutCancel(outer.Context()), resource)
		require.NoError(t, err)
		cancel()
		time.Sleep(3 * ttl)
		synctest.Wait()
		require.False(t, isLost(inner))
		require.NoError(t, inner.Release(t.Context()))
		time.Sleep(ttl)
		synctest.Wait()
		require.True(t, isFree(t, fake), "only an orphan is left, which nobody renews")
		require.ErrorIs(t, outer.Release(t.Context()), lock.ErrLost)
	})
}

func TestAcquireAllStartsAgainWhenItLosesOneWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		other, err := newLocker(t, fake).Acquire(t.Context(), "b")
		require.NoError(t, err)
		time.AfterFunc(3*time.Second, func() { _ = other.Release(context.Background()) })
		l := newLocker(t, fake, lock.WithoutRenewal(), lock.WithTTL(time.Second))
		s, err := l.AcquireAll(t.Context(), "a", "b")
		require.NoError(t, err)
		require.False(t, isLost(s))
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestFairTryAcquireLeavesNobodyInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		first := acquire(t, newLocker(t, b, lock.WithFair()))
		l := newLocker(t, b, lock.WithFair())
		_, err := l.TryAcquire(t.Context(), resource)
		require.ErrorIs(t, err, lock.ErrHeld)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, resource)
		require.ErrorIs(t, err, lock.ErrHeld)
		synctest.Wait()
		require.NoError(t, first.Release(t.Context()))
		s, err := l.TryAcquire(t.Context(), resource)
		require.NoError(t, err, "a phantom is served")
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestNewRefusesNilPointers(t *testing.T) {
	t.Parallel()
	_, err := lock.New((*memlock.Backend)(nil))
	require.ErrorContains(t, err, "back end is nil")
	_, err = lock.New(memlock.New(), lock.WithGuards((*guard.Memory)(nil)))
	require.ErrorContains(t, err, "guard 0 is nil")
	_, err = lock.New(memlock.New(), nil)
	require.ErrorContains(t, err, "option is nil")
	_, err = lock.New(memlock.New(), lock.WithSequencer(nil))
	require.ErrorContains(t, err, "sequencer is nil")
	_, err = lock.New(memlock.New(), lock.WithRenewEvery(time.Nanosecond))
	require.ErrorContains(t, err, "every 1ns")
	require.False(t, errors.Is(err, lock.ErrClosed))
}

// The standard library takes contexts that cannot be compared.
func TestTheEndOfAContextThatCannotBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		parent, cancel := context.WithCancel(t.Context())
		type values struct {
			context.Context
			_ map[string]string
		}
		outer, err := l.Acquire(values{Context: parent}, resource)
		require.NoError(t, err)
		_, err = l.Acquire(values{Context: outer.Context()}, resource)
		require.NoError(t, err)
		require.NoError(t, outer.Release(t.Context()))
		time.Sleep(2 * ttl)
		require.False(t, isFree(t, fake), "the inner lease is renewed")
		cancel()
		time.Sleep(ttl)
		require.True(t, isFree(t, fake))
	})
}

type boundedFake struct{ *locktest.Fake }

func (boundedFake) Bounded() bool { return true }

// A bounded back end is down, and its client gives up after a second. That a renewal fails
// is no answer either: those who call it meanwhile do not wait past their contexts.
func TestARenewalThatFailsIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, boundedFake{fake}, lock.WithRenewEvery(100*time.Millisecond))
		acquire(t, l)
		for _, op := range []locktest.Op{locktest.Acquire, locktest.Renew, locktest.Release} {
			fake.Before(op, func(context.Context, lock.Request) error { time.Sleep(time.Second); return errBroken })
		}
		late := 0
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			begun := time.Now()
			_, err := l.TryAcquire(ctx, "another")
			require.Error(t, err)
			if time.Since(begun) > 50*time.Millisecond {
				late++
			}
			cancel()
		}
		require.LessOrEqual(t, late, 1, "the first one")
	})
}
