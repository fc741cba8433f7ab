package zklock_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
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

// deletions are the paths that a connection was asked to delete.
type deletions struct {
	net.Conn
	mu    *sync.Mutex
	paths map[string]bool
}

func (d deletions) Write(p []byte) (int, error) {
	const remove, path = 2, 16 // the operation's number, and where the path begins
	if len(p) > path && binary.BigEndian.Uint32(p[8:]) == remove {
		d.mu.Lock()
		d.paths[string(p[path:path+int(binary.BigEndian.Uint32(p[12:]))])] = true
		d.mu.Unlock()
	}
	return d.Conn.Write(p)
}

// Whoever waits behind a leftover does not wait for the deletions of others too.
func TestLeftoversAreDeletedSeveralAtATime(t *testing.T) {
	t.Parallel()
	l := link(t, servertest.ZooKeeper(t)[0])
	seen := deletions{mu: new(sync.Mutex), paths: make(map[string]bool)}
	b := open(t, []string{l.Addr()}, zklock.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, timeout)
		return deletions{conn, seen.mu, seen.paths}, err
	}))
	requests := make([]lock.Request, 10)
	for i := range requests {
		requests[i] = request()
		acquire(t, b, requests[i])
	}
	l.Silence()
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range requests {
		require.ErrorIs(t, b.Release(dead, r), context.Canceled)
	}
	require.Eventually(t, func() bool { // though nobody answers
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return len(seen.paths) == len(requests)
	}, 5*time.Second, time.Millisecond)
	l.Reset()
	l.Heal()
	require.Eventually(t, func() bool { return b.Leftovers() == 0 }, within, time.Millisecond)
}

// The session ends while a release is under way. That its node is gone is no proof then
// that the release has deleted it.
func TestALossDuringItsReleaseIsOne(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again %v", again), func(t *testing.T) {
			t.Parallel()
			servers := servertest.ZooKeeper(t)
			l := link(t, servers[0])
			b, r := open(t, []string{l.Addr()}, zklock.WithSessionTimeout(2*time.Second)), request()
			r.TTL = 1500 * time.Millisecond
			acquire(t, b, r)
			l.Cut()
			if again {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, b.Release(ctx, r), context.DeadlineExceeded)
			}
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
			require.Eventually(t, func() bool { return b.Leftovers() == 0 }, within, time.Millisecond)
		})
	}
}
