package redisguard_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

func clusterClient(t *testing.T, c *localserver.RedisCluster) *redis.ClusterClient {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// write does what a holder does after a fault: it acquires again, and writes.
func write(t *testing.T, r guardAndResource, token *guard.Token, value string) {
	t.Helper()
	wait(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		*token++
		f := fence(r.resource, *token, "B")
		if err := r.g.Raise(ctx, f); err != nil {
			return err
		}
		return r.g.Set(guard.NewContext(ctx, f), r.g.Key(r.resource, "stock"), value, 0)
	})
}

// A slot moves key by key: a fence and its data are apart for a while, and nobody gets
// in between.
func TestASlotMovesKeyByKey(t *testing.T) {
	t.Parallel()
	c := servertest.NewRedisCluster(t, 2, 0)
	rdb := clusterClient(t, c)
	g := open(t, rdb)
	const resource = "inventory:sku-42"
	a, _ := raised(t, g, resource, 33, "A")
	key := g.Key(resource, "stock")
	require.NoError(t, g.Set(a, key, "from A", 0))
	b, f := raised(t, g, resource, 34, "B")

	from, to := nodes(t, rdb, key)
	slot := rdb.ClusterKeySlot(b, key).Val()
	do := func(node *redis.Client, args ...any) {
		t.Helper()
		require.NoError(t, node.Do(b, args...).Err())
	}
	id := func(node *redis.Client) string { return node.ClusterMyID(b).Val() }
	do(to, "cluster", "setslot", slot, "importing", id(from))
	do(from, "cluster", "setslot", slot, "migrating", id(to))
	host, port, err := net.SplitHostPort(to.Options().Addr)
	require.NoError(t, err)
	move := func(key string) { do(from, "migrate", host, port, key, 0, 5000) }
	require.NoError(t, g.Set(b, key, "before", 0))

	move("fencing:raised:{" + resource + "}")
	require.NoError(t, g.Raise(b, f), "it has gone ahead, and is found there")
	err = g.Set(b, key, "apart", 0)
	require.True(t, redis.HasErrorPrefix(err, "TRYAGAIN"), "%v", err)
	require.ErrorContains(t, err, "nothing was written: the slot is on its way to another node")
	require.ErrorContains(t, g.Set(a, key, "apart", 0), "TRYAGAIN")

	move(key)
	require.ErrorIs(t, g.Set(a, key, "stale", 0), guard.ErrStale)
	require.NoError(t, g.Set(b, key, "together again", 0))
	for _, node := range []*redis.Client{to, from} {
		do(node, "cluster", "setslot", slot, "node", id(to))
	}
	require.ErrorIs(t, g.Set(a, key, "stale", 0), guard.ErrStale)
	require.NoError(t, g.Set(b, key, "after", 0))
	require.Equal(t, "after", rdb.Get(b, key).Val())
}

// nodes returns the node that has key, and the other one.
func nodes(t *testing.T, rdb *redis.ClusterClient, key string) (from, to *redis.Client) {
	t.Helper()
	from, err := rdb.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	all := make(chan *redis.Client, 2)
	require.NoError(t, rdb.ForEachMaster(t.Context(), func(_ context.Context, c *redis.Client) error { all <- c; return nil }))
	for range 2 {
		if c := <-all; c.Options().Addr != from.Options().Addr {
			to = c
		}
	}
	return from, to
}

// The master of a slot is killed: what had been replicated is still fenced.
func TestAClusterGoesOnAfterTheLossOfAMaster(t *testing.T) {
	t.Parallel()
	c := servertest.NewRedisCluster(t, 3, 1)
	rdb := clusterClient(t, c)
	r := guardAndResource{open(t, rdb), "inventory:sku-42"}
	a, _ := raised(t, r.g, r.resource, 33, "A")
	key := r.g.Key(r.resource, "stock")
	token := guard.Token(33)
	write(t, r, &token, "from B")

	master, err := rdb.MasterForKey(a, key)
	require.NoError(t, err)
	require.NoError(t, master.Wait(a, 1, soon).Err())
	for _, n := range c.Nodes {
		if n.Addr() == master.Options().Addr {
			require.NoError(t, n.Kill())
		}
	}
	write(t, r, &token, "from C")
	require.ErrorIs(t, r.g.Set(a, key, "stale", 0), guard.ErrStale)
	require.Equal(t, "from C", rdb.Get(a, key).Val())
}

func TestSentinelGoesOnAfterTheLossOfTheMaster(t *testing.T) {
	t.Parallel()
	servers := servertest.NewRedisSentinel(t, 1, 3)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: localserver.SentinelMaster, SentinelAddrs: servers.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	r := guardAndResource{open(t, rdb), "inventory:sku-42"}
	a, _ := raised(t, r.g, r.resource, 33, "A")
	token := guard.Token(33)
	write(t, r, &token, "from B")
	require.EqualValues(t, 1, rdb.Wait(a, 1, soon).Val())
	require.NoError(t, servers.Master.Kill())
	write(t, r, &token, "from C")
	key := r.g.Key(r.resource, "stock")
	require.ErrorIs(t, r.g.Set(a, key, "stale", 0), guard.ErrStale)
	require.Equal(t, "from C", rdb.Get(a, key).Val())
}

// What a failover loses, it loses from the end: not a fence without what was written
// under it. Here the raise of B and its write are lost together, since the replica
// had stopped to listen; A's fence is in force again, and B is not let in.
func TestS9_AFailoverLosesFromTheEnd(t *testing.T) {
	t.Parallel()
	master := servertest.NewRedis(t, localserver.RedisOptions{})
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--replicaof", host, port, "--repl-diskless-sync-delay", "0"}})
	before, onReplica := open(t, client(t, master.URL())), client(t, replica.URL())
	const resource = "inventory:sku-42"
	key := before.Key(resource, "stock")
	a, _ := raised(t, before, resource, 33, "A")
	require.NoError(t, before.Set(a, key, "from A", 0))
	wait(t, func() error {
		if got := onReplica.Get(a, key).Val(); got != "from A" {
			return fmt.Errorf("the replica has %q", got)
		}
		return nil
	})
	require.NoError(t, onReplica.Do(a, "replicaof", "no", "one").Err()) // promoted, while the master is cut off
	b, f := raised(t, before, resource, 34, "B")
	require.NoError(t, before.Set(b, key, "from B", 0), "on the old master")

	after := open(t, onReplica)
	require.ErrorIs(t, after.Set(b, key, "from B again", 0), guard.ErrNotRaised)
	require.NoError(t, after.Set(a, key, "from A again", 0), "the history that survives has no B")
	require.NoError(t, after.Raise(b, f))
	require.ErrorIs(t, after.Set(a, key, "stale", 0), guard.ErrStale)
}
