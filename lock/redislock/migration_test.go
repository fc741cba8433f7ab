package redislock_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// A slot whose keys have moved while its old owner still answers for it: no node has all
// keys of a script, and says TRYAGAIN. A holder releases, and who waits gets the lock,
// as soon as the slot has arrived.
func TestCallsWaitForASlotThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	const resource = "inventory:sku-42"
	ctx := t.Context()
	rdb := clusterClient(t, servertest.NewRedisCluster(t, 3, 0))
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	l, err := lock.New(b)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	held, err := l.Acquire(ctx, resource)
	require.NoError(t, err)

	key := rediskeys.Default().Lock(resource)
	slot := rdb.ClusterKeySlot(ctx, key).Val()
	from, to := ownerAndOther(t, rdb, key)
	require.NoError(t, to.Do(ctx, "cluster", "setslot", slot, "importing", from.ClusterMyID(ctx).Val()).Err())
	require.NoError(t, from.Do(ctx, "cluster", "setslot", slot, "migrating", to.ClusterMyID(ctx).Val()).Err())
	host, port, err := net.SplitHostPort(to.Options().Addr)
	require.NoError(t, err)
	keys, err := from.ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, k := range keys {
		require.NoError(t, from.Do(ctx, "migrate", host, port, k, 0, 5000).Err())
	}
	hasty, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = b.Acquire(hasty, lock.Request{Resource: resource, Nonce: "n", TTL: time.Second})
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrHeld, "the slot is not on its way")

	require.NoError(t, b.Renew(ctx, lock.Request{Resource: resource, Nonce: held.Fence().Nonce, TTL: time.Minute}), "has one key")
	next := make(chan error, 1)
	go func() {
		next <- l.Do(ctx, resource, func(context.Context) error { return nil })
	}()
	released := make(chan error, 1)
	go func() { released <- held.Release(ctx) }()
	<-time.After(500 * time.Millisecond)
	for _, node := range []*redis.Client{to, from} {
		require.NoError(t, node.Do(ctx, "cluster", "setslot", slot, "node", to.ClusterMyID(ctx).Val()).Err())
	}
	require.NoError(t, <-released)
	require.NoError(t, <-next)
}

func ownerAndOther(t *testing.T, rdb *redis.ClusterClient, key string) (owner, other *redis.Client) {
	t.Helper()
	owner, err := rdb.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	masters := make(chan *redis.Client, 16)
	require.NoError(t, rdb.ForEachMaster(t.Context(), func(_ context.Context, c *redis.Client) error { masters <- c; return nil }))
	close(masters)
	for c := range masters {
		if c.Options().Addr != owner.Options().Addr {
			other = c
		}
	}
	return owner, other
}
