package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/faultlink"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
)

// A node misses two releases. One of them it cannot carry out: its lock's key has
// somebody's data by now.
func TestADebtThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	link, err := faultlink.New(c.servers[0].Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	nodes := c.connect(t)
	far := redis.NewClient(&redis.Options{Addr: link.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	nodes[0] = far
	b, err := redlock.New(nodes, trusting())
	require.NoError(t, err)
	bad, good := request(), request()
	bad.Resource, good.Resource = "bad", "good"
	has := func(r lock.Request) bool { return c.clients[0].Exists(t.Context(), b.LockKey(r.Resource)).Val() == 1 }
	for _, r := range []lock.Request{bad, good} {
		take(t, b, r)
		require.Eventually(t, func() bool { return has(r) }, time.Minute, time.Millisecond)
	}
	require.NoError(t, c.clients[0].Set(t.Context(), b.LockKey(bad.Resource), "data", 0).Err())
	link.Cut()
	for i, r := range []lock.Request{bad, good} {
		require.NoError(t, b.Release(t.Context(), r))
		require.Eventually(t, func() bool { return b.Owed(0) == i+1 }, time.Minute, time.Millisecond)
	}
	require.NoError(t, b.Release(t.Context(), good))
	require.Never(t, func() bool { return b.Owed(0) != 2 }, time.Second, time.Millisecond, "it owes the same again")
	require.True(t, has(good))
	link.Reset()
	link.Heal()
	require.Eventually(t, func() bool { return !has(good) }, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return b.Owed(0) == 0 }, 30*time.Second, time.Millisecond)
	require.Equal(t, "data", c.clients[0].Get(t.Context(), b.LockKey(bad.Resource)).Val())
}

// An error is an answer, and what is owed is for a node that gave none; unless it is one
// that does nothing at all, for now.
func TestWhatANodeIsToldAgain(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), patient())
	r := request()
	take(t, b, r)
	node := c.clients[0]
	has := func() bool { return node.Exists(t.Context(), b.LockKey(resource)).Val() == 1 }
	require.Eventually(t, has, time.Minute, time.Millisecond)
	require.NoError(t, node.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	require.NoError(t, b.Release(t.Context(), r))
	require.Eventually(t, func() bool { return b.Owed(0) == 1 }, time.Minute, time.Millisecond)
	require.True(t, has())
	require.NoError(t, node.ReplicaOf(t.Context(), "no", "one").Err())
	require.Eventually(t, func() bool { return !has() }, 30*time.Second, time.Millisecond)

	require.NoError(t, node.Set(t.Context(), b.LockKey(resource), "data", 0).Err())
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
	require.Never(t, func() bool { return b.Owed(0) > 0 }, 200*time.Millisecond, time.Millisecond)
}

// The rights of the node's user are being changed.
func TestANodeThatForbidsTheReleaseIsToldAgain(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), patient())
	r := request()
	take(t, b, r)
	node := c.clients[0]
	has := func() bool { return node.Exists(t.Context(), b.LockKey(resource)).Val() == 1 }
	require.Eventually(t, has, time.Minute, time.Millisecond)
	require.NoError(t, node.Do(t.Context(), "ACL", "SETUSER", "default", "-eval", "-evalsha").Err())
	require.NoError(t, b.Release(t.Context(), r))
	require.Eventually(t, func() bool { return b.Owed(0) == 1 }, time.Minute, time.Millisecond)
	require.True(t, has())
	require.NoError(t, node.Do(t.Context(), "ACL", "SETUSER", "default", "+@all").Err())
	require.Eventually(t, func() bool { return !has() }, 30*time.Second, time.Millisecond)
}

// The lock was taken away, and the reply that says so is lost: go-redis asks again by
// itself.
func TestALossIsOneThoughItsReplyIsLost(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	link, err := faultlink.New(c.servers[0].Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	far := redis.NewClient(&redis.Options{Addr: link.Addr(), ReadTimeout: 200 * time.Millisecond})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	b, err := redlock.New([]redis.UniversalClient{far}, trusting(), patient())
	require.NoError(t, err)
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost) // so that the node has the script
	r := request()
	take(t, b, r)
	require.NoError(t, c.clients[0].Del(t.Context(), b.LockKey(resource)).Err())
	link.LoseReply(r.Nonce)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	require.Equal(t, 1, link.Lost())
}

// A server without memory frees what it has, and knows what it does not have.
func TestAFullNodeReleases(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	b := c.backend(t, trusting(), patient())
	r := request()
	take(t, b, r)
	require.NoError(t, c.clients[0].ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.NoError(t, b.Release(t.Context(), r))
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
	require.NoError(t, c.clients[0].ConfigSet(t.Context(), "maxmemory", "0").Err())
	take(t, b, request())
}
