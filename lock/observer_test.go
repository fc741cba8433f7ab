package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

type traceKey struct{}

// of returns the only event of a kind.
func (r *recorder) of(t *testing.T, kind guard.EventKind) guard.Event {
	t.Helper()
	require.Equal(t, 1, r.count(kind), "%s in %v", kind, r.all())
	for _, e := range r.all() {
		if e.Kind == kind {
			return e
		}
	}
	return guard.Event{}
}

func TestEventsHaveTheContextOfTheirCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, store := locktest.NewFake(), guard.NewMemory()
		require.NoError(t, store.Raise(t.Context(), guard.Fence{Resource: resource, Token: 40, Nonce: "earlier"}))
		var r recorder
		l := newLocker(t, fake, lock.WithObserver(r.observe), lock.WithGuards(store))
		traced := func(id string) context.Context { return context.WithValue(t.Context(), traceKey{}, id) }

		s, err := l.Acquire(traced("acquire"), resource)
		require.NoError(t, err)
		time.Sleep(15 * time.Second)
		require.NoError(t, s.Release(traced("release")))
		s, err = l.Acquire(traced("lost"), resource)
		require.NoError(t, err)
		fake.Expire(resource)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.True(t, isLost(s))

		for _, e := range r.all() {
			require.NotNil(t, e.Context, e.Kind.String())
		}
		for kind, want := range map[guard.EventKind]string{
			guard.EventRepaired: "acquire", guard.EventRefused: "acquire", guard.EventReleased: "release", guard.EventLost: "lost",
		} {
			require.Equal(t, want, r.of(t, kind).Context.Value(traceKey{}), kind.String())
		}
		require.Equal(t, s.Context(), r.of(t, guard.EventLost).Context)
		for _, e := range r.all() {
			switch e.Kind {
			case guard.EventAcquired, guard.EventRaised:
				require.NotNil(t, e.Context.Value(traceKey{}), e.Kind.String())
			case guard.EventRenewed:
				require.Equal(t, context.Background(), e.Context, "renewals are nobody's call")
			}
		}
	})
}

func TestReleaseTellsWhatWasLeftOfTheLease(t *testing.T) {
	const margin = ttl/100 + 2*time.Millisecond
	for name, c := range map[string]struct {
		held   time.Duration
		expire bool
		want   time.Duration
	}{
		"in time": {held: 4 * time.Second, want: ttl - margin - 4*time.Second},
		"late":    {held: ttl + time.Second, want: -margin - time.Second},
		"lost":    {held: 4 * time.Second, expire: true, want: 0}, // by then nothing was, although the deadline is ahead
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				fake := locktest.NewFake()
				s := acquire(t, newLocker(t, fake, lock.WithObserver(r.observe), lock.WithoutRenewal()))
				time.Sleep(c.held)
				if c.expire {
					fake.Expire(resource)
				}
				fake.Before(locktest.Release, func(context.Context, lock.Request) error { time.Sleep(time.Second); return nil })
				err := s.Release(t.Context())
				e := r.of(t, guard.EventReleased)
				require.Equal(t, c.want, e.Remaining)
				require.Equal(t, time.Second, e.Took)
				require.ErrorIs(t, e.Err, err)
			})
		})
	}
}

func TestContextOfALeaseKnowsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		outer := acquire(t, newLocker(t, fake, lock.WithTTL(9*time.Second)))
		before, ok := guard.Deadline(outer.Context())
		require.True(t, ok)
		require.Equal(t, outer.Deadline(), before)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		renewed, _ := guard.Deadline(outer.Context())
		require.Equal(t, 3*time.Second, renewed.Sub(before), "it moves with the renewals")

		inner, err := newLocker(t, fake, lock.WithTTL(time.Minute)).Acquire(outer.Context(), "other")
		require.NoError(t, err)
		first, _ := guard.Deadline(inner.Context())
		require.Equal(t, outer.Deadline(), first, "the first of them to end")
	})
}

func TestWaitThatEndsWithoutTheLockIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		fake := locktest.NewFake()
		acquire(t, newLocker(t, fake))
		l := newLocker(t, fake, lock.WithObserver(r.observe))
		_, err := l.TryAcquire(t.Context(), resource)
		require.ErrorIs(t, err, lock.ErrHeld)
		e := r.of(t, guard.EventAcquired)
		require.ErrorIs(t, e.Err, lock.ErrHeld)
		require.Equal(t, resource, e.Fence.Resource)
		require.Zero(t, r.count(guard.EventWaited), "it has not waited")

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, resource)
		require.Error(t, err)
		e = r.of(t, guard.EventWaited)
		require.ErrorIs(t, e.Err, context.DeadlineExceeded)
		require.ErrorIs(t, e.Err, lock.ErrHeld)
		require.Equal(t, 3*time.Second, e.Took)
		require.Equal(t, resource, e.Fence.Resource)
	})
}

func TestAFirstAttemptThatFailsIsTold(t *testing.T) {
	t.Parallel()
	var r recorder
	fake := locktest.NewFake()
	noRoute := errors.New("no route")
	fake.Before(locktest.Acquire, func(context.Context, lock.Request) error { return noRoute })
	_, err := newLocker(t, fake, lock.WithObserver(r.observe)).Acquire(t.Context(), resource)
	require.ErrorIs(t, err, noRoute)
	require.ErrorIs(t, r.of(t, guard.EventAcquired).Err, noRoute)
	require.Len(t, r.all(), 1)
}

// A guard with an observer of its own would tell of a raise a second time.
func TestRaiseIsToldOnce(t *testing.T) {
	t.Parallel()
	var r recorder
	observed := guard.Observer(r.observe)
	refuse := errors.New("the store is away")
	for _, fails := range []error{nil, refuse} {
		g := guardFunc(func(ctx context.Context, f guard.Fence) error {
			observed.Raised(ctx, f, time.Second, fails)
			return fails
		})
		_, err := newLocker(t, locktest.NewFake(), lock.WithGuards(g), lock.WithObserver(r.observe)).Acquire(t.Context(), resource)
		require.ErrorIs(t, err, fails)
		_, err = newLocker(t, locktest.NewFake(), lock.WithGuards(g)).Acquire(t.Context(), resource)
		require.ErrorIs(t, err, fails)
	}
	require.Equal(t, 2, r.count(guard.EventRaised), "by the locker, and by the guard where the locker has no observer")
	require.Equal(t, 2, r.count(guard.EventRefused))
}
