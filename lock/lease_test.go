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

// S28: nested scopes of one owner share the fence.
func TestS28_ReentryByContextSharesTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, store := locktest.NewFake(), guard.NewMemory()
		l := newLocker(t, fake, lock.WithGuards(store))
		outer := acquire(t, l)
		inner, err := l.Acquire(outer.Context(), resource)
		require.NoError(t, err)
		require.Equal(t, outer.Fence(), inner.Fence())
		require.Equal(t, 1, fake.Calls(locktest.Acquire))
		require.NoError(t, write(inner.Context(), store))
		require.NoError(t, write(outer.Context(), store))

		require.NoError(t, inner.Release(t.Context()))
		require.ErrorIs(t, context.Cause(inner.Context()), lock.ErrReleased)
		require.NoError(t, outer.Context().Err(), "the outer scope goes on")
		require.False(t, isFree(t, fake))
		require.NoError(t, outer.Release(t.Context()))
		require.True(t, isFree(t, fake))
	})
}

func TestTheLastOneOutReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		outer := acquire(t, l)
		inner, err := l.Acquire(outer.Context(), resource)
		require.NoError(t, err)
		require.NoError(t, outer.Release(t.Context()))
		require.False(t, isFree(t, fake))
		time.Sleep(2 * ttl)
		require.False(t, isFree(t, fake), "the inner lease is renewed still")
		require.NoError(t, inner.Release(t.Context()))
		require.True(t, isFree(t, fake))
	})
}

func TestReentryWithAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		outer := acquire(t, l)
		both, err := l.AcquireAll(outer.Context(), resource, "inventory:sku-43")
		require.NoError(t, err)
		require.Equal(t, outer.Fence(), both.Fence())
		require.NoError(t, both.Release(t.Context()))
		require.False(t, isFree(t, fake))
		require.NoError(t, outer.Release(t.Context()))
	})
}

func TestADifferentContextDoesNotReenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, locktest.NewFake())
		s := acquire(t, l)
		_, err := l.TryAcquire(t.Context(), resource)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestALossEndsEveryDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		outer := acquire(t, l)
		inner, err := l.Acquire(outer.Context(), resource)
		require.NoError(t, err)
		fake.Expire(resource)
		<-inner.Lost()
		<-outer.Lost()
		require.ErrorIs(t, context.Cause(inner.Context()), lock.ErrLost)
		_, err = l.Acquire(outer.Context(), resource)
		require.ErrorIs(t, err, lock.ErrLost, "a lost scope cannot be re-entered")
		require.ErrorIs(t, inner.Release(t.Context()), lock.ErrLost)
		require.ErrorIs(t, outer.Release(t.Context()), lock.ErrLost)
	})
}

// The lost signal outlives the context, for clean-up that must not die with it.
func TestLostIsSeparateFromTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		ctx, cancel := context.WithCancel(t.Context())
		s, err := newLocker(t, fake).Acquire(ctx, resource)
		require.NoError(t, err)
		cancel()
		<-s.Context().Done()
		require.False(t, isLost(s))
		require.NoError(t, s.Release(context.WithoutCancel(ctx)))
		require.False(t, isLost(s), "a released lease is not lost")
	})
}

func TestReleaseOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)

		s := acquire(t, l)
		require.NoError(t, s.Release(t.Context()))
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrReleased)
		require.Equal(t, 1, fake.Calls(locktest.Release))

		s = acquire(t, l)
		fake.Expire(resource)
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrLost)

		s = acquire(t, l)
		fake.Before(locktest.Release, fail)
		err := s.Release(t.Context())
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "frees itself within 30s")
		fake.Before(locktest.Release, nil)
		time.Sleep(ttl)
		require.True(t, isFree(t, fake))
		require.NoError(t, acquire(t, l).Release(t.Context()), "a failed release does not block later ones")
	})
}

func TestConcurrentReleasesReleaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		s := acquire(t, newLocker(t, fake))
		var mu sync.Mutex
		var wg sync.WaitGroup
		good := 0
		for range 16 {
			wg.Go(func() {
				if s.Release(t.Context()) == nil {
					mu.Lock()
					good++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, good)
		require.Equal(t, 1, fake.Calls(locktest.Release))
	})
}

func TestReentryRacesWithRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake)
		for range 500 {
			s := acquire(t, l)
			var wg sync.WaitGroup
			var outer, inner error
			wg.Go(func() { outer = s.Release(t.Context()) })
			wg.Go(func() {
				if s, err := l.Acquire(s.Context(), resource); err == nil {
					inner = s.Release(t.Context())
				}
			})
			wg.Wait()
			require.NoError(t, outer)
			require.NoError(t, inner)
			synctest.Wait()
			require.True(t, isFree(t, fake))
		}
	})
}

func TestJoinPassesTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, ours, theirs := locktest.NewFake(), guard.NewMemory(), guard.NewMemory()
		owner := acquire(t, newLocker(t, fake, lock.WithGuards(ours)))
		text, err := owner.Fence().MarshalText()
		require.NoError(t, err)

		var f guard.Fence // in another process
		require.NoError(t, f.UnmarshalText(text))
		other := newLocker(t, fake, lock.WithGuards(theirs))
		joined, err := other.Join(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, owner.Fence(), joined.Fence())
		require.NoError(t, write(joined.Context(), theirs), "the fence is raised in the joiner's stores too")

		nested, err := other.Acquire(joined.Context(), resource)
		require.NoError(t, err)
		require.NoError(t, nested.Release(t.Context()))

		require.NoError(t, owner.Release(t.Context()))
		time.Sleep(3 * ttl)
		require.False(t, isFree(t, fake), "the joiner keeps the lock")
		require.False(t, isLost(joined))
		require.NoError(t, joined.Release(t.Context()))
		require.True(t, isFree(t, fake))

		_, err = other.Join(t.Context(), f)
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

func TestAJoinerThatDiesIsCleanedUpByItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		owner := acquire(t, newLocker(t, fake))
		_, err := newLocker(t, fake, lock.WithoutRenewal()).Join(t.Context(), owner.Fence())
		require.NoError(t, err)
		require.NoError(t, owner.Release(t.Context()))
		time.Sleep(ttl)
		require.True(t, isFree(t, fake))
	})
}

func TestCloseReleasesAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l, err := lock.New(fake)
		require.NoError(t, err)
		s := acquire(t, l)
		other, err := l.Acquire(t.Context(), "other")
		require.NoError(t, err)
		waiting := make(chan error, 1)
		go func() {
			_, err := l.Acquire(context.Background(), resource)
			waiting <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-waiting, lock.ErrClosed)
		require.ErrorIs(t, context.Cause(s.Context()), lock.ErrReleased)
		require.ErrorIs(t, context.Cause(other.Context()), lock.ErrReleased)
		require.True(t, isFree(t, fake))
		_, err = l.Acquire(t.Context(), resource)
		require.ErrorIs(t, err, lock.ErrClosed)
		require.NoError(t, l.Close(), "twice is once")
	})
}

// A lookedAt context tells when somebody looks at it.
type lookedAt struct {
	context.Context
	tell func()
}

func (c lookedAt) Err() error {
	c.tell()
	return c.Context.Err()
}

// Either Close releases a lease or the Acquire that made it undoes it. If both did,
// the later one would find the lock lost.
func TestCloseRacesWithAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		fake := locktest.NewFake()
		l, err := lock.New(fake, lock.WithObserver(r.observe))
		require.NoError(t, err)
		const others = 20 // more than Close releases at once
		for i := range others {
			_, err := l.Acquire(t.Context(), fmt.Sprint(resource, i))
			require.NoError(t, err)
		}
		late := make(chan struct{})
		fake.Before(locktest.Release, func(_ context.Context, r lock.Request) error {
			if r.Resource != resource {
				<-late
			}
			return nil
		})

		closed := make(chan error, 1)
		begin := sync.OnceFunc(func() {
			go func() { closed <- l.Close() }()
			for range 1000 { // until Close is at work; it may need a mutex that is held here
				runtime.Gosched()
			}
		})
		_, err = l.Acquire(lookedAt{t.Context(), func() {
			if fake.Calls(locktest.Acquire) > others { // it is granted, and about to be handed out
				begin()
			}
		}}, resource)
		require.ErrorIs(t, err, lock.ErrClosed)
		synctest.Wait()
		close(late)
		require.NoError(t, <-closed)
		require.True(t, isFree(t, fake))
		for _, e := range r.all() {
			require.NotErrorIs(t, e.Err, lock.ErrLost, e.Kind.String())
		}
		require.Equal(t, others, r.count(guard.EventReleased), "nobody got the last one")
	})
}

func TestCloseIsBoundedWhileTheBackendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l, err := lock.New(fake)
		require.NoError(t, err)
		resume := fake.Hang(locktest.Acquire)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, resource)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		begun := time.Now()
		require.ErrorIs(t, l.Close(), lock.ErrUnknown)
		require.Equal(t, 5*time.Second, time.Since(begun))
		resume()
	})
}
