package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
)

// A node that is down and one that hangs cost nothing: nobody waits for them.
func TestAMinorityDownChangesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	b := c.backend(t, trusting(), redlock.WithNodeTimeout(time.Minute))
	require.NoError(t, c.servers[1].Kill())
	require.NoError(t, c.servers[3].Pause())
	begun := time.Now()
	r := hourlong()
	last := guard.Token(0)
	for range 3 {
		token := take(t, b, r)
		require.Greater(t, token, last)
		last = token
		require.NoError(t, b.Renew(t.Context(), r))
		h, err := b.Inspect(t.Context(), resource)
		require.NoError(t, err)
		require.Equal(t, token, h.Token)
		_, err = b.Acquire(t.Context(), request())
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, b.Release(t.Context(), r))
		r.Nonce += "+"
	}
	require.Less(t, time.Since(begun), 30*time.Second, "somebody waited for a node that does not answer")
	require.NoError(t, c.servers[3].Resume())
}

func TestAMajorityDownIsAClearError(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), redlock.WithNodeTimeout(300*time.Millisecond))
	held := hourlong()
	held.Resource = "held"
	take(t, b, held)
	for _, i := range []int{0, 2} {
		require.NoError(t, c.servers[i].Pause())
	}
	r := hourlong()
	_, err := b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, `redlock: acquire "inventory:sku-42": `)
	require.ErrorContains(t, err, "of 3 nodes answered, a majority of 2 is needed: nodes[")
	require.NotErrorIs(t, err, lock.ErrHeld)
	require.NotErrorIs(t, err, lock.ErrLost)
	for _, err := range []error{b.Renew(t.Context(), held), b.Release(t.Context(), held)} {
		require.ErrorContains(t, err, "of 3 nodes answered, a majority of 2 is needed")
		require.NotErrorIs(t, err, lock.ErrLost, "nobody said so")
	}
	_, err = b.Inspect(t.Context(), resource)
	require.ErrorContains(t, err, "a majority of 2 is needed")

	for _, i := range []int{0, 2} {
		require.NoError(t, c.servers[i].Resume())
	}
	for i, rdb := range c.clients {
		require.Eventually(t, func() bool { return rdb.Exists(t.Context(), b.LockKey(resource)).Val() == 0 },
			30*time.Second, time.Millisecond, "node %d keeps the lock of an attempt that failed", i)
	}
	next := hourlong()
	eventually(t, b, next, 30*time.Second)
	require.NoError(t, b.Release(t.Context(), next))
}

func TestKilledNodesAreNamed(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var clients []redis.UniversalClient
	for _, s := range c.servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1})
		t.Cleanup(func() { _ = rdb.Close() })
		clients = append(clients, rdb)
	}
	b, err := redlock.New(clients, trusting(), patient())
	require.NoError(t, err)
	require.NoError(t, c.servers[0].Kill())
	require.NoError(t, c.servers[1].Kill())
	_, err = b.Acquire(t.Context(), request())
	require.ErrorContains(t, err, "1 of 3 nodes answered, a majority of 2 is needed: nodes[")
	require.ErrorContains(t, err, "connection refused")
}

// Extending a rival's lock is the fault of some peers.
func TestARenewalNeverTouchesARival(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), patient())
	old := hourlong()
	old.TTL = 2 * time.Hour
	take(t, b, old)
	steal := func(i int, nonce string) {
		key := b.LockKey(resource)
		require.NoError(t, c.clients[i].Del(t.Context(), key).Err())
		require.NoError(t, c.clients[i].HSet(t.Context(), key, "nonce", nonce, "holder", "rival", "base", "5", "token", "6").Err())
		require.NoError(t, c.clients[i].PExpire(t.Context(), key, time.Minute).Err())
	}
	untouched := func(i int) {
		key := b.LockKey(resource)
		require.Equal(t, "rival", c.clients[i].HGet(t.Context(), key, "holder").Val())
		require.LessOrEqual(t, c.clients[i].PTTL(t.Context(), key).Val(), time.Minute)
	}
	steal(2, "rival")
	require.NoError(t, b.Renew(t.Context(), old), "a majority is still its own")
	untouched(2)
	steal(1, "rival")
	require.ErrorIs(t, b.Renew(t.Context(), old), lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), old), lock.ErrLost)
	untouched(1)
	untouched(2)
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, "rival", h.Holder)
	require.Equal(t, guard.Token(6), h.Token)
}

// two of five say yes, two say no, and one does not answer.
func TestAnUndecidableOutcomeIsNoLoss(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	b := c.backend(t, trusting(), redlock.WithNodeTimeout(time.Second))
	r := hourlong()
	take(t, b, r)
	for _, rdb := range c.clients {
		require.Eventually(t, func() bool { return rdb.Exists(t.Context(), b.LockKey(resource)).Val() == 1 }, 30*time.Second, time.Millisecond)
	}
	for _, i := range []int{0, 1} {
		require.Eventually(t, func() bool { return c.clients[i].Del(t.Context(), b.LockKey(resource)).Val() == 1 }, 30*time.Second, time.Millisecond)
	}
	require.NoError(t, c.servers[4].Pause())
	for _, err := range []error{b.Renew(t.Context(), r), b.Release(t.Context(), r)} {
		require.ErrorContains(t, err, "4 of 5 nodes answered, a majority of 3 is needed: nodes[4]: no answer")
		require.NotErrorIs(t, err, lock.ErrLost)
	}
	require.NoError(t, c.servers[4].Resume())
}

// counting counts the scripts that a client has under way.
func counting(rdb redis.UniversalClient) (now, most *atomic.Int64) {
	now, most = new(atomic.Int64), new(atomic.Int64)
	rdb.AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if keys, _ := redlock.KeysOf(cmd); keys == 0 {
			return next(ctx, cmd)
		}
		for n, m := now.Add(1), most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		defer now.Add(-1)
		return next(ctx, cmd)
	}))
	return now, most
}

// A node that hangs does not collect the goroutines of all calls.
func TestASilentNodeIsSpared(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var clients []redis.UniversalClient
	for _, s := range c.servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: 5 * time.Minute, PoolTimeout: 5 * time.Minute})
		t.Cleanup(func() { _ = rdb.Close() })
		clients = append(clients, rdb)
	}
	now, most := counting(clients[2])
	b, err := redlock.New(clients, trusting(), patient())
	require.NoError(t, err)
	require.NoError(t, c.servers[2].Pause())
	silent := time.NewTimer(2 * redlock.MinSilence)
	for calls := 0; calls < 2*redlock.MaxSilent; {
		r := request()
		take(t, b, r)
		require.NoError(t, b.Release(t.Context(), r))
		if calls++; calls == redlock.MaxSilent/4 {
			<-silent.C
		}
	}
	require.LessOrEqual(t, most.Load(), int64(redlock.MaxSilent+1))
	require.NoError(t, c.servers[2].Resume())
	require.Eventually(t, func() bool { return now.Load() == 0 }, 60*time.Second, time.Millisecond)
}

func TestABurstAfterALullIsNoSilence(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	clients := c.connect(t)
	b, err := redlock.New(clients, trusting(), patient())
	require.NoError(t, err)
	take(t, b, request())
	<-time.After(redlock.MinSilence + 100*time.Millisecond)
	g := newGate(redlock.GrantKeys)
	clients[0].AddHook(g)
	const burst = 2 * redlock.MaxSilent
	var wg sync.WaitGroup
	for i := range burst {
		wg.Go(func() {
			r := request()
			r.Resource = fmt.Sprint(i)
			_, err := b.Acquire(t.Context(), r)
			assert.NoError(t, err)
		})
	}
	g.wait(t, burst)
	close(g.open)
	wg.Wait()
}

// The time of an acquisition counts from its start. A process that was stopped does
// not notice by the timeouts: what it waited for is there when it goes on.
func TestAnAcquisitionThatTakesATTLIsLost(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	begun := time.Now()
	asked := 0
	b := c.backend(t, trusting(), patient()).WithClock(func() time.Time {
		asked++
		return begun.Add(time.Duration(asked-1) * 30 * time.Second)
	})
	r := request()
	r.TTL = 30 * time.Second
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, lock.ErrLost)
	require.ErrorContains(t, err, "its TTL of 30s ended before a majority agreed")
	for _, rdb := range c.clients {
		require.Eventually(t, func() bool { return rdb.Exists(t.Context(), b.LockKey(resource)).Val() == 0 }, 20*time.Second, time.Millisecond)
	}
	asked = 0
	r = request()
	r.TTL = time.Minute
	take(t, b, r)
}
