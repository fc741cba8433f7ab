package lock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// eachPassing runs test with a back end whose calls end by themselves and with one whose
// calls may hang.
func eachPassing(t *testing.T, test func(t *testing.T, b *passingBackend)) {
	for name, unbounded := range map[string]bool{"bounded": false, "unbounded": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newPassing()
				b.unbounded = unbounded
				test(t, b)
			})
		})
	}
}

// requireUsable requires that s got the lock, and that it is free after its release.
func (b *passingBackend) requireUsable(t *testing.T, s granted) {
	t.Helper()
	require.NoError(t, s.err)
	require.Equal(t, s.Fence().Token, b.holding(t).Token)
	require.NoError(t, s.Release(t.Context()))
	synctest.Wait()
	require.Zero(t, b.holding(t).Token, "somebody is left behind")
}

func TestAPassToAWaiterThatGaveUpIsUndone(t *testing.T) {
	eachPassing(t, func(t *testing.T, b *passingBackend) {
		l := newLocker(t, b)
		first := acquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		gone, next := waitFor(ctx, l), waitFor(t.Context(), l)
		resume := b.delay()
		released := release(t, first)
		b.asked.Store(0)

		begun := time.Now()
		cancel()
		s := <-gone
		require.ErrorIs(t, s.err, context.Canceled)
		require.ErrorIs(t, s.err, lock.ErrHeld)
		require.Zero(t, time.Since(begun), "it returns at once")
		synctest.Wait()
		require.EqualValues(t, 1, b.asked.Load(), "the next one asks, and is refused by what is undone later")
		time.Sleep(100 * time.Millisecond)
		begun = time.Now()
		resume()
		require.NoError(t, <-released)
		s = <-next
		require.Equal(t, begun, s.at, "the late grant stays")
		b.requireUsable(t, s)
	})
}

// The context may end when the lock is there already, and nobody has looked.
func TestAGrantThatNobodyHasSeenIsUndone(t *testing.T) {
	eachPassing(t, func(t *testing.T, b *passingBackend) {
		for range 100 { // it is a matter of chance which of the two the waiter sees
			l, err := lock.New(b)
			require.NoError(t, err)
			first := acquire(t, l)
			ctx, cancel := context.WithCancel(t.Context())
			gone := waitFor(ctx, l)
			b.once(func(ctx context.Context, r, next lock.Request) (guard.Token, error) {
				defer cancel()
				return b.Backend.Pass(ctx, r, next)
			})
			require.NoError(t, first.Release(t.Context()))
			require.ErrorIs(t, (<-gone).err, context.Canceled)
			require.NoError(t, l.Close())
			require.Zero(t, b.holding(t).Token)
		}
	})
}

func TestCloseWaitsForAPassAndItsUndoing(t *testing.T) {
	eachPassing(t, func(t *testing.T, b *passingBackend) {
		l, err := lock.New(b)
		require.NoError(t, err)
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		resume := b.delay()
		released := release(t, first)
		begun := time.Now()
		time.AfterFunc(time.Second, resume)
		require.NoError(t, l.Close())
		require.Equal(t, time.Second, time.Since(begun))
		require.Zero(t, b.holding(t).Token)
		s := <-got
		require.ErrorIs(t, s.err, lock.ErrClosed)
		require.Equal(t, begun, s.at)
		require.NoError(t, <-released)
	})
}

// The reply is lost, before or after the back end has done it.
func TestAPassWithoutAClearAnswerIsUndoneAndTheWaiterAsks(t *testing.T) {
	for name, done := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			eachPassing(t, func(t *testing.T, b *passingBackend) {
				l := newLocker(t, b)
				first := acquire(t, l)
				got := waitFor(t.Context(), l)
				var spent string
				b.once(func(ctx context.Context, r, next lock.Request) (guard.Token, error) {
					spent = next.Nonce
					if done {
						_, err := b.Backend.Pass(ctx, r, next)
						require.NoError(t, err)
					}
					return 0, errBroken
				})
				begun := time.Now()
				err := first.Release(t.Context())
				require.ErrorIs(t, err, lock.ErrUnknown)
				require.ErrorIs(t, err, errBroken)
				s := <-got
				require.NoError(t, s.err)
				require.Equal(t, begun, s.at, "it waits for the TTL of a lock that nobody has")
				require.NotEqual(t, spent, s.Fence().Nonce)
				b.requireUsable(t, s)
			})
		})
	}
}

// The server may get to the call only when the caller has given it up.
func TestAPassThatComesAfterItsUndoingGrantsNothing(t *testing.T) {
	eachPassing(t, func(t *testing.T, b *passingBackend) {
		l := newLocker(t, b)
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		b.once(func(_ context.Context, r, next lock.Request) (guard.Token, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.late = func() { _, _ = b.Backend.Pass(context.Background(), r, next) }
			return 0, errBroken
		})
		b.beforeAcquire(func() error { synctest.Wait(); return nil }) // until it is undone
		require.ErrorIs(t, first.Release(t.Context()), lock.ErrUnknown)
		begun := time.Now()
		s := <-got
		require.Equal(t, begun, s.at)
		b.requireUsable(t, s)
	})
}

// A second pass to the same waiter would be undone with the first: they have one nonce.
func TestAWaiterIsPassedOneLockAtATime(t *testing.T) {
	eachPassing(t, func(t *testing.T, b *passingBackend) {
		l := newLocker(t, b)
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		gate := make(chan struct{})
		b.once(func(ctx context.Context, r, next lock.Request) (guard.Token, error) {
			<-gate
			return b.Backend.Pass(ctx, r, next)
		})
		released := release(t, first)
		require.NoError(t, b.Backend.Release(t.Context(), lock.Request{Resource: resource, Nonce: first.Fence().Nonce}))
		second, err := l.TryAcquire(t.Context(), resource)
		require.NoError(t, err)
		require.NoError(t, second.Release(t.Context()))
		require.EqualValues(t, 1, b.passed.Load())
		close(gate)
		require.ErrorIs(t, <-released, lock.ErrLost)
		b.requireUsable(t, <-got)
	})
}

// A waiter that has not been refused itself is one who waits all the same.
func TestAWaiterOutlivesAnOutageThatBeginsWithThePass(t *testing.T) {
	eachPassing(t, func(t *testing.T, b *passingBackend) {
		l := newLocker(t, b)
		first := acquire(t, l)
		second, third := waitFor(t.Context(), l), waitFor(t.Context(), l)
		require.NoError(t, first.Release(t.Context()))
		s := <-second
		require.NoError(t, s.err)
		b.once(func(context.Context, lock.Request, lock.Request) (guard.Token, error) { return 0, errBroken })
		b.beforeAcquire(func() error { return errBroken })
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrUnknown)
		time.Sleep(20 * time.Second)
		b.beforeAcquire(nil)
		b.requireUsable(t, <-third)
	})
}

func TestALostLeasePassesNothing(t *testing.T) {
	eachPassing(t, func(t *testing.T, b *passingBackend) {
		b.deaf = true
		l := newLocker(t, b)
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		time.Sleep(time.Second) // it asks when the holder's TTL ends, if not before
		require.NoError(t, b.Backend.Release(t.Context(), lock.Request{Resource: resource, Nonce: first.Fence().Nonce}))
		begun := time.Now()
		require.ErrorIs(t, first.Release(t.Context()), lock.ErrLost)
		require.EqualValues(t, 1, b.passed.Load())
		s := <-got
		require.Equal(t, begun, s.at, "it need not wait to know more")
		b.requireUsable(t, s)
	})
}

// Others wait too: then all of them ask, and none twice.
func TestALockThatIsFreedInsteadIsAskedFor(t *testing.T) {
	for name, deaf := range map[string]bool{"woken": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			eachPassing(t, func(t *testing.T, b *passingBackend) {
				b.deaf = deaf
				l := newLocker(t, b)
				first := acquire(t, l)
				got, behind := waitFor(t.Context(), l), waitFor(t.Context(), l)
				_, err := newLocker(t, b).TryAcquire(t.Context(), resource)
				require.ErrorIs(t, err, lock.ErrHeld)
				b.asked.Store(0)
				begun := time.Now()
				require.NoError(t, first.Release(t.Context()))
				s := <-got
				require.NoError(t, s.err)
				require.Equal(t, begun, s.at)
				synctest.Wait()
				require.EqualValues(t, 1, b.asked.Load())
				require.NoError(t, s.Release(t.Context()))
				b.requireUsable(t, <-behind)
			})
		})
	}
}

// The back end does what it was asked to, but says so too late for the release.
func TestAPassThatHangsDelaysTheReleaseByItsTimeAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		b.unbounded = true
		l := newLocker(t, b)
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		resume := b.delay()
		defer resume()
		b.asked.Store(0)
		begun := time.Now()
		require.ErrorIs(t, first.Release(t.Context()), lock.ErrUnknown)
		require.Equal(t, 5*time.Second, time.Since(begun))
		synctest.Wait()
		require.EqualValues(t, 1, b.asked.Load(), "the waiter asks by itself from now on")
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, got, "its own grant, of which nobody knows yet, is in its way")
		begun = time.Now()
		resume()
		s := <-got
		require.Equal(t, begun, s.at)
		b.requireUsable(t, s)
	})
}

// Long before the release is given up, a grant with a short TTL is none any more.
func TestAPassThatTakesLongerThanTheTTLIsWorthless(t *testing.T) {
	const ttl = time.Second
	for name, c := range map[string]struct {
		looks       time.Duration // of the waiter, after each of which it would ask
		reply, most time.Duration
	}{
		"late":    {looks: 1000 * time.Hour, reply: 1200 * time.Millisecond, most: 1200 * time.Millisecond},
		"hanging": {looks: 50 * time.Millisecond, reply: 4500 * time.Millisecond, most: ttl + 75*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			eachPassing(t, func(t *testing.T, b *passingBackend) {
				b.deaf = true
				l := newLocker(t, b, lock.WithTTL(ttl), lock.WithRetryWait(c.looks))
				first := acquire(t, l)
				got, behind := waitFor(t.Context(), l), waitFor(t.Context(), l)
				resume := b.delay()
				begun := time.Now()
				released := release(t, first)
				time.AfterFunc(c.reply, resume)
				s := <-got
				require.NoError(t, s.err)
				require.GreaterOrEqual(t, s.at.Sub(begun), ttl)
				require.LessOrEqual(t, s.at.Sub(begun), c.most)
				require.EqualValues(t, 3, s.Fence().Token, "token 2 was granted by the pass")
				require.NoError(t, <-released)
				synctest.Wait()
				require.False(t, isLost(s.Lease), "it is undone with the late one")
				require.Empty(t, behind, "it lost its place")
				require.NoError(t, s.Release(t.Context()))
				b.requireUsable(t, <-behind)
			})
		})
	}
}

// Whoever waits, gives up and releases at the same time: one holder at a time, and nothing
// is left at the end.
func TestPassesRaceWithWaitersThatGiveUp(t *testing.T) {
	t.Parallel()
	for _, unbounded := range []bool{false, true} {
		b := &passingBackend{Backend: memlock.New(), unbounded: unbounded}
		lockers := []*lock.Locker{newLocker(t, b), newLocker(t, b)}
		var inside, held atomic.Int32
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				for range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
					s, err := lockers[i%8/7].Acquire(ctx, resource)
					if err == nil {
						if inside.Add(1) != 1 {
							t.Error("two holders")
						}
						held.Add(1)
						time.Sleep(rand.N(100 * time.Microsecond)) // others come meanwhile
						inside.Add(-1)
						if err := s.Release(ctx); err != nil {
							t.Error(err)
						}
					}
					cancel()
				}
			})
		}
		all.Wait()
		for _, l := range lockers {
			require.NoError(t, l.Close())
		}
		require.Positive(t, b.passed.Load())
		require.Positive(t, held.Load())
		require.Zero(t, b.holding(t).Token, "a lock is left behind")
	}
}
