// Package metricstest plays a history of real lockers to an observer, in which
// nearly everything happens once.
package metricstest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// Resource is what the history is about.
const Resource = "inventory:sku-42"

// What the history has of everything. Times are those of its own clock.
const (
	Acquisitions  = 3
	Waits         = 2 // one of FirstWait that got the lock, one of SecondWait that gave up
	WaitsGivenUp  = 1
	Raises        = 3 // that were admitted
	RefusedRaises = 1 // stale: the store is ahead
	RefusedWrites = 1 // stale
	Regressions   = 1
	Renewals      = 1
	Commits       = 1
	Lost          = 1
	Released      = 2
	ReleasedLost  = 1

	FirstWait  = 4 * time.Second
	SecondWait = time.Second
)

// Play plays it under ctx, with the clock of a synctest bubble that it makes, and
// calls after in that. It returns the nonces that were used.
func Play(t *testing.T, ctx context.Context, o guard.Observer, after func()) (nonces []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nonces = play(t, ctx, o)
		after()
	})
	return nonces
}

func play(t *testing.T, ctx context.Context, o guard.Observer) (nonces []string) {
	ctx = context.WithoutCancel(ctx) // which is of outside the bubble
	const ttl = 9 * time.Second
	store, backend := guard.NewMemory(), memlock.New()
	locker := func(holder string, opts ...lock.Option) *lock.Locker {
		opts = append(opts, lock.WithTTL(ttl), lock.WithHolder(holder), lock.WithGuards(store), lock.WithObserver(o))
		l, err := lock.New(backend, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	a, b := locker("worker-a"), locker("worker-b", lock.WithoutRenewal())
	// The sequencer has forgotten.
	require.NoError(t, store.Raise(ctx, guard.Fence{Resource: Resource, Token: 40, Nonce: "earlier"}))

	first, err := a.Acquire(ctx, Resource)
	require.NoError(t, err)
	acquired := make(chan *lock.Lease, 1)
	go func() {
		s, err := b.Acquire(ctx, Resource)
		if err == nil {
			acquired <- s
		}
		close(acquired)
	}()
	synctest.Wait()
	time.Sleep(FirstWait) // with one renewal
	require.NoError(t, first.Release(ctx))
	second := <-acquired
	require.NotNil(t, second)

	err = store.Write(first.Context(), Resource, func() error { return nil })
	require.Error(t, err)
	err = store.Write(guard.NewContext(ctx, first.Fence()), Resource, func() error { return nil })
	require.ErrorIs(t, err, guard.ErrStale)
	o.Refused(ctx, err) // as a guard of a database does
	o.Committed(second.Context(), second.Fences())
	time.Sleep(ttl)
	require.ErrorIs(t, second.Release(ctx), lock.ErrLost)

	third, err := a.Acquire(ctx, Resource)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, SecondWait)
	defer cancel()
	_, err = b.Acquire(short, Resource)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, third.Release(ctx))
	return []string{first.Fence().Nonce, second.Fence().Nonce, third.Fence().Nonce}
}
