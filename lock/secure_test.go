package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/sequencer"
)

func write(ctx context.Context, m *guard.Memory) error {
	return m.Write(ctx, resource, func() error { return nil })
}

func TestEveryGuardIsRaisedBeforeAcquireReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := guard.NewMemory(), guard.NewMemory()
		l := newLocker(t, locktest.NewFake(), lock.WithGuards(one), lock.WithGuards(two))
		s := acquire(t, l)
		require.NoError(t, write(s.Context(), one))
		require.NoError(t, write(s.Context(), two))
		require.NoError(t, s.Release(t.Context()))
	})
}

// S44: the holder pauses between two stores. Its successor has raised both before it
// reads either, so the second write is refused; that the first one stays is the lack
// of a transaction over both.
func TestS44_AHolderThatPausesBetweenTwoStoresWritesOnlyTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, one, two := locktest.NewFake(), guard.NewMemory(), guard.NewMemory()
		a := acquire(t, newLocker(t, fake, lock.WithGuards(one, two)))
		paused := guard.NewContext(context.WithoutCancel(a.Context()))
		require.NoError(t, write(paused, one))
		fake.Expire(resource)
		b := acquire(t, newLocker(t, fake, lock.WithGuards(one, two)))
		require.ErrorIs(t, write(paused, two), guard.ErrStale)
		require.ErrorIs(t, write(paused, one), guard.ErrStale)
		require.NoError(t, write(b.Context(), two))
		require.ErrorIs(t, a.Release(t.Context()), lock.ErrLost)
		require.NoError(t, b.Release(t.Context()))
	})
}

// S48: the deadline is advice. Who has looked at it and pauses then is refused by the
// store, and by nothing else.
func TestS48_ALookAtTheDeadlineIsNoGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, store := locktest.NewFake(), guard.NewMemory()
		a := acquire(t, newLocker(t, fake, lock.WithGuards(store)))
		paused := guard.NewContext(context.WithoutCancel(a.Context()))
		require.True(t, time.Now().Before(a.Deadline()))
		require.NoError(t, a.Context().Err())
		fake.Expire(resource) // and now it pauses
		b := acquire(t, newLocker(t, fake, lock.WithGuards(store)))
		require.NoError(t, write(b.Context(), store))
		require.ErrorIs(t, write(paused, store), guard.ErrStale)
		require.ErrorIs(t, a.Release(t.Context()), lock.ErrLost)
		require.NoError(t, b.Release(t.Context()))
	})
}

// S1 and S2: the holder pauses past its lease; the store, not the clock, refuses it.
func TestS1_S2_APausedHolderIsRefusedBeforeItsSuccessorWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, store := locktest.NewFake(), guard.NewMemory()
		a := acquire(t, newLocker(t, fake, lock.WithGuards(store)))
		paused := guard.NewContext(context.WithoutCancel(a.Context())) // it does not look at its context
		fake.Expire(resource)
		b := acquire(t, newLocker(t, fake, lock.WithGuards(store), lock.WithHolder("B")))
		err := write(paused, store)
		require.ErrorIs(t, err, guard.ErrStale)
		require.ErrorContains(t, err, "of B")
		require.NoError(t, write(b.Context(), store))
		require.ErrorIs(t, a.Release(t.Context()), lock.ErrLost)
		require.NoError(t, b.Release(t.Context()))
	})
}

// S9, S13, S40: the sequencer forgot; the store remembers and repairs it.
func TestS13_AForgetfulBackendIsRepairedFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, store := locktest.NewFake(), guard.NewMemory()
		var r recorder
		l := newLocker(t, fake, lock.WithGuards(store), lock.WithObserver(r.observe))
		var last guard.Token
		for range 5 {
			s := acquire(t, l)
			last = s.Fence().Token
			require.NoError(t, s.Release(t.Context()))
		}
		fake.Forget()
		s := acquire(t, l)
		require.Greater(t, s.Fence().Token, last)
		require.NoError(t, write(s.Context(), store))
		require.Equal(t, 1, r.count(guard.EventRepaired))
		require.Equal(t, 1, r.count(guard.EventRefused))
		require.NoError(t, s.Release(t.Context()))
		next := acquire(t, l)
		require.Equal(t, 1, r.count(guard.EventRepaired), "one repair mends the counter for all")
		require.NoError(t, next.Release(t.Context()))
	})
}

// S9: two holders of one token at once; only one fence is in force.
func TestS9_TwoHoldersOfOneTokenGetTwoFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, store := locktest.NewFake(), guard.NewMemory()
		a := acquire(t, newLocker(t, fake, lock.WithGuards(store)))
		fake.Forget() // the replica that was promoted knows nothing of A
		b := acquire(t, newLocker(t, fake, lock.WithGuards(store)))
		require.Greater(t, b.Fence().Token, a.Fence().Token)
		require.ErrorIs(t, write(context.WithoutCancel(a.Context()), store), guard.ErrStale)
		require.NoError(t, write(b.Context(), store))
	})
}

func TestRepairStopsAfterAFewTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		var r recorder
		stubborn := guardFunc(func(_ context.Context, f guard.Fence) error {
			return &guard.StaleError{Held: f, Current: guard.Fence{Resource: f.Resource, Token: f.Token + 10, Holder: "Z"}}
		})
		_, err := newLocker(t, fake, lock.WithGuards(stubborn), lock.WithObserver(r.observe)).Acquire(t.Context(), resource)
		require.ErrorIs(t, err, guard.ErrStale)
		require.ErrorContains(t, err, "refused 4 tokens")
		require.Equal(t, 3, r.count(guard.EventRepaired))
		synctest.Wait()
		require.True(t, isFree(t, fake))
	})
}

func TestAPoisonedFenceDoesNotPoisonTheCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		poisoned := guardFunc(func(_ context.Context, f guard.Fence) error {
			return &guard.StaleError{Held: f, Current: guard.Fence{Resource: f.Resource, Token: 1<<63 - 1}}
		})
		_, err := newLocker(t, fake, lock.WithGuards(poisoned)).Acquire(t.Context(), resource)
		require.ErrorIs(t, err, sequencer.ErrJump)
		synctest.Wait()
		s := acquire(t, newLocker(t, fake))
		require.Less(t, s.Fence().Token, guard.Token(10))
		require.NoError(t, s.Release(t.Context()))
	})
}

// S18: the fence was rebased, and the counter not yet.
func TestS18_ATokenThatTheStoreHasGivenUpIsNoReasonForAGreaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		var r recorder
		rebased := guardFunc(func(_ context.Context, f guard.Fence) error {
			return &guard.StaleError{Held: f, Current: guard.Fence{Resource: f.Resource, Token: 1000, Holder: "rebase"}}
		})
		b := afterToken{fake, 1 << 62}
		_, err := newLocker(t, b, lock.WithGuards(rebased), lock.WithObserver(r.observe)).Acquire(t.Context(), resource)
		require.ErrorIs(t, err, guard.ErrStale)
		require.ErrorContains(t, err, `run "fencectl rebase" with that too`)
		require.Zero(t, r.count(guard.EventRepaired))
		synctest.Wait()
		require.True(t, isFree(t, fake))
	})
}

// afterToken is a back end whose counter stands at token.
type afterToken struct {
	lock.Backend
	token guard.Token
}

func (b afterToken) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	n, err := b.Backend.Acquire(ctx, r)
	return n + b.token, err
}

func TestAFailedRaiseFreesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake, lock.WithGuards(guard.NewMemory(), guardFunc(func(context.Context, guard.Fence) error { return errBroken })))
		_, err := l.Acquire(t.Context(), resource)
		require.ErrorIs(t, err, errBroken)
		synctest.Wait()
		require.True(t, isFree(t, fake))
	})
}

// S7: the lock is lost while the raise waits; the late raise must not count.
func TestS7_ALockLostDuringTheRaiseIsAcquiredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		store := guard.NewMemory()
		slow := true
		g := guardFunc(func(ctx context.Context, f guard.Fence) error {
			if slow {
				slow = false
				fake.Expire(resource)
				<-ctx.Done() // the keeper finds out and ends the raise
				return errors.Join(guard.ErrBlocked, context.Cause(ctx))
			}
			return store.Raise(ctx, f)
		})
		var r recorder
		s := acquire(t, newLocker(t, fake, lock.WithGuards(g), lock.WithObserver(r.observe)))
		require.EqualValues(t, 2, s.Fence().Token)
		require.Zero(t, r.count(guard.EventLost), "nobody had a lease on the first one")
		require.NoError(t, write(s.Context(), store))
		require.NoError(t, s.Release(t.Context()))
	})
}

// The store refuses the fence because another has the lock by now, and not because
// the back end forgot: whoever waits goes on waiting, and TryAcquire says it is held.
func TestS7_ALockThatWentToAnotherBeforeTheRaiseIsWaitedFor(t *testing.T) {
	for name, acquireAnew := range map[string]func(l *lock.Locker, ctx context.Context) (*lock.Lease, error){
		"Acquire":    func(l *lock.Locker, ctx context.Context) (*lock.Lease, error) { return l.Acquire(ctx, resource) },
		"TryAcquire": func(l *lock.Locker, ctx context.Context) (*lock.Lease, error) { return l.TryAcquire(ctx, resource) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, store := locktest.NewFake(), guard.NewMemory()
				other := newLocker(t, fake, lock.WithGuards(store))
				slow := true
				g := guardFunc(func(ctx context.Context, f guard.Fence) error {
					if slow {
						slow = false
						fake.Expire(resource)
						s := acquire(t, other)
						time.AfterFunc(time.Second, func() { _ = s.Release(context.Background()) })
					}
					return store.Raise(ctx, f)
				})
				l := newLocker(t, fake, lock.WithGuards(g))
				s, err := acquireAnew(l, t.Context())
				if name == "TryAcquire" {
					require.ErrorIs(t, err, lock.ErrHeld)
					time.Sleep(2 * time.Second)
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, 3, s.Fence().Token)
				require.NoError(t, write(s.Context(), store))
				require.NoError(t, s.Release(t.Context()))
			})
		})
	}
}

func TestTheLeaseIsRenewedWhileTheRaiseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		g := guardFunc(func(context.Context, guard.Fence) error { time.Sleep(3 * ttl); return nil })
		s := acquire(t, newLocker(t, fake, lock.WithGuards(g)))
		require.False(t, isLost(s))
		require.EqualValues(t, 1, s.Fence().Token)
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestRaiseEndsWithTheContextOfAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		g := guardFunc(func(ctx context.Context, _ guard.Fence) error { <-ctx.Done(); return context.Cause(ctx) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newLocker(t, fake, lock.WithGuards(g)).Acquire(ctx, resource)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.True(t, isFree(t, fake))
	})
}

// A counter is a sequencer that shows when it was asked.
type counter struct {
	token guard.Token
	next  func()
}

func (c *counter) Next(_ context.Context, _ string, after guard.Token) (guard.Token, error) {
	c.token = max(c.token, after) + 1
	if c.next != nil {
		c.next()
	}
	return c.token, nil
}

func TestWithSequencerItsTokensAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		l := newLocker(t, fake, lock.WithSequencer(&counter{token: 1000}))
		s := acquire(t, l)
		require.EqualValues(t, 1001, s.Fence().Token)
		require.Equal(t, 1, fake.Calls(locktest.Renew), "the lock is checked again after the token was drawn")
		require.NoError(t, s.Release(t.Context()))
	})
}

// S15: between the grant and the token another holder may have come and gone.
func TestS15_ALockLostBeforeItsTokenWasDrawnIsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		seq := &counter{}
		seq.next = func() {
			if seq.token == 1 {
				fake.Expire(resource)
			}
		}
		store := guard.NewMemory()
		s := acquire(t, newLocker(t, fake, lock.WithSequencer(seq), lock.WithGuards(store)))
		require.EqualValues(t, 2, s.Fence().Token, "token 1 belongs to a lock that was lost")
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestWithSequencerRepairAsksTheSequencer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := guard.NewMemory()
		require.NoError(t, store.Raise(t.Context(), guard.Fence{Resource: resource, Token: 500, Nonce: "old"}))
		s := acquire(t, newLocker(t, locktest.NewFake(), lock.WithSequencer(&counter{}), lock.WithGuards(store)))
		require.EqualValues(t, 501, s.Fence().Token)
		require.NoError(t, s.Release(t.Context()))
	})
}

// Where nothing is renewed, or for no longer, a raise that is slow ends in the same way
// however often it is tried.
func TestARaiseThatTakesLongerThanTheLockIsHeldIsAnError(t *testing.T) {
	slow := lock.WithGuards(guardFunc(func(ctx context.Context, _ guard.Fence) error {
		select {
		case <-time.After(600 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w by process 4711: %w", guard.ErrBlocked, context.Canceled)
		}
	}))
	for name, c := range map[string]struct {
		opts      []lock.Option
		resources []string
		says      string
	}{
		"without renewal": {[]lock.Option{lock.WithTTL(500 * time.Millisecond), lock.WithoutRenewal()}, []string{resource}, "4711"},
		"max hold":        {[]lock.Option{lock.WithMaxHold(500 * time.Millisecond)}, []string{resource}, "4711"},
		"two of them":     {[]lock.Option{lock.WithMaxHold(time.Second)}, []string{"a", "b"}, "longest time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := locktest.NewFake()
				l := newLocker(t, fake, append(c.opts, slow)...)
				_, err := l.AcquireAll(t.Context(), c.resources...)
				require.ErrorIs(t, err, lock.ErrLost)
				require.ErrorContains(t, err, "took longer than it may be held")
				require.ErrorContains(t, err, c.says)
				require.Equal(t, len(c.resources), fake.Calls(locktest.Acquire))
			})
		})
	}
}

// The raise ends at the deadline, and the keeper has something else to do at that time.
func TestAHoldWhoseDeadlineHasPassedIsNoLease(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			until := guardFunc(func(context.Context, guard.Fence) error { time.Sleep(ttl - margin); return nil })
			l := newLocker(t, locktest.NewFake(), lock.WithoutRenewal(), lock.WithGuards(until))
			_, err := l.TryAcquire(t.Context(), resource)
			require.ErrorIs(t, err, lock.ErrLost)
		})
	}
}
