package zklock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// Of acquisitions that have reached nobody there is nothing to clear, however many fail
// in an outage, and of a lock whose release failed there is.
func TestAnOutageLeavesNoMoreToClearThanThereIs(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	l := link(t, servers[0])
	b, r := open(t, []string{l.Addr()}), request()
	acquire(t, b, r)
	l.Cut()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			other := request()
			if _, err := b.Acquire(ctx, other); err == nil {
				t.Error("acquired from nobody")
			}
			undo, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if b.Release(undo, other) == nil {
				t.Error("released by nobody")
			}
		})
	}
	all.Wait()
	require.Zero(t, b.Leftovers())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Release(ctx, r), context.DeadlineExceeded)
	require.Equal(t, 1, b.Leftovers())
	l.Reset() // the deletion never arrives
	l.Heal()
	require.Eventually(t, func() bool { return b.Leftovers() == 0 }, within, time.Millisecond)
	require.Empty(t, nodes(t, client(t, servers), b, r.Resource))
}

// The session ends while a release is under way. That its node is gone is no proof then
// that the release has deleted it.
func TestALossDuringItsReleaseIsOne(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	l := link(t, servers[0])
	b, r := open(t, []string{l.Addr()}, zklock.WithSessionTimeout(2*time.Second)), request()
	r.TTL = 1500 * time.Millisecond
	acquire(t, b, r)
	l.Cut()
	other, released := open(t, servers), make(chan error, 1)
	go func() { released <- b.Release(t.Context(), r) }()
	require.Eventually(t, func() bool {
		_, err := other.Acquire(t.Context(), rival(r))
		return err == nil
	}, within, 100*time.Millisecond)
	l.Reset()
	l.Heal()
	require.ErrorIs(t, <-released, lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	require.Zero(t, b.Leftovers())
}
