package zklock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/faultlink"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// Holders of several processes, of which some are cut off for longer than their session
// lives, while members hang and die: nobody gets the lock before the one who had it must
// presume it lost, and tokens grow.
func TestNoTwoHoldersWhileMembersAndLinksFail(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	e := servertest.NewZooKeeper(t, 3, localserver.ZooKeeperOptions{Settings: map[string]string{"syncLimit": "10"}}) // 2s until a leader that hangs has a successor
	var (
		mu      sync.Mutex
		current *lock.Lease // the last one granted, nil once it is released
		last    guard.Token
		grants  atomic.Int64
		losses  atomic.Int64
		sever   atomic.Bool // the next holder is cut off until another has the lock
		workers sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	work := func(l *lock.Locker, links []*faultlink.Link) {
		s, err := l.Acquire(ctx, resource)
		if err != nil {
			return // no quorum for a while
		}
		mu.Lock()
		if before := current; before != nil && time.Now().Before(before.Deadline()) {
			t.Errorf("token %d while token %d has %v", s.Fence().Token, before.Fence().Token, time.Until(before.Deadline()))
		}
		if s.Fence().Token <= last {
			t.Errorf("token %d after %d", s.Fence().Token, last)
		}
		current, last = s, s.Fence().Token
		mu.Unlock()
		granted := grants.Add(1)
		if sever.CompareAndSwap(true, false) {
			for _, l := range links {
				l.Cut()
			}
			<-s.Lost()
			losses.Add(1)
			assert.Eventually(t, func() bool { return grants.Load() > granted }, within, 10*time.Millisecond, "nobody gets the lock of one who is cut off")
			for _, l := range links {
				l.Heal()
			}
		}
		select {
		case <-time.After(rand.N(20 * time.Millisecond)):
		case <-ctx.Done():
		}
		mu.Lock()
		if current == s {
			current = nil
		}
		mu.Unlock()
		_ = s.Release(t.Context())
	}
	for range 3 {
		var addrs []string
		var links []*faultlink.Link
		for _, m := range e.Members {
			l := link(t, m.Addr())
			addrs, links = append(addrs, l.Addr()), append(links, l)
		}
		l := locker(t, open(t, addrs, zklock.WithSessionTimeout(2*time.Second)), lock.WithTTL(ttl))
		for range 2 {
			workers.Go(func() {
				for ctx.Err() == nil {
					work(l, links)
				}
			})
		}
	}
	grown := func(what string) { // the lock changes hands
		before := grants.Load()
		require.Eventually(t, func() bool { return grants.Load() > before+2 }, within, 10*time.Millisecond, what)
	}
	grown("at the beginning")
	for _, m := range e.Members {
		sever.Store(true)
		grown("a holder is cut off")
		require.NoError(t, m.Pause())
		grown("a member hangs")
		require.NoError(t, m.Kill())
		grown("a member is killed")
		require.NoError(t, m.Restart(t.Context()))
	}
	stop()
	workers.Wait()
	require.EqualValues(t, len(e.Members), losses.Load())
	t.Logf("%d grants", grants.Load())
}
