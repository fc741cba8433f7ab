package redislock_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/redislock"
)

// S12: an acquisition that too few replicas confirm is none.
func TestS12_TooFewReplicasTakeTheLockBack(t *testing.T) {
	t.Parallel()
	master := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0"}})
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	var replicas []*localserver.Redis
	for range 2 {
		replicas = append(replicas, servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--replicaof", host, port}}))
	}
	rdb := client(t, master.URL())
	require.Eventually(t, func() bool {
		return strings.Count(rdb.Info(t.Context(), "replication").Val(), "state=online") == 2
	}, soon, 20*time.Millisecond)
	b, err := redislock.New(rdb, redislock.WithReplicas(2, 2*time.Second))
	require.NoError(t, err)
	t.Run("all", func(t *testing.T) {
		locktest.Run(t, func(*testing.T) lock.Backend { return notPassing{b, b, b, b, b, b} })
	})

	require.NoError(t, replicas[0].Pause())
	hasty, err := redislock.New(rdb, redislock.WithReplicas(2, 50*time.Millisecond))
	require.NoError(t, err)
	r := request()
	_, err = hasty.Acquire(t.Context(), r)
	require.ErrorIs(t, err, redislock.ErrReplicas)
	require.ErrorContains(t, err, "1 of 2 after 50ms")
	one, err := redislock.New(rdb, redislock.WithReplicas(1, 2*time.Second))
	require.NoError(t, err)
	r = request()
	_, err = one.Acquire(t.Context(), r)
	require.NoError(t, err, "the refused attempt has left the lock behind")
	rival := request()
	_, err = one.Acquire(t.Context(), rival)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, replicas[0].Resume())
}

// S10: one of two replicas was waited for, and the other one, which has not heard of the
// lock, is promoted. WAIT makes that rarer; the guard makes it harmless.
func TestS10_ThePromotedReplicaIsNotTheOneThatWasWaitedFor(t *testing.T) {
	t.Parallel()
	const resource = "inventory:sku-42"
	master := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0"}})
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	var replicas []*redis.Client
	for range 2 {
		r := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--replicaof", host, port}})
		replicas = append(replicas, client(t, r.URL()))
	}
	store := guard.NewMemory()
	open := func(rdb *redis.Client, opts ...redislock.Option) *lock.Locker {
		b, err := redislock.New(rdb, opts...)
		require.NoError(t, err)
		l, err := lock.New(b, lock.WithGuards(store))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	rdb := client(t, master.URL())
	online := func(n int) func() bool {
		return func() bool {
			return strings.Count(rdb.Info(t.Context(), "replication").Val(), "state=online") == n
		}
	}
	require.Eventually(t, online(2), soon, 20*time.Millisecond)
	require.NoError(t, open(rdb, redislock.WithReplicas(2, 2*time.Second)).Do(t.Context(), resource, func(context.Context) error { return nil }))

	require.NoError(t, replicas[1].ReplicaOf(t.Context(), "NO", "ONE").Err()) // its link is cut, and later it is promoted
	require.Eventually(t, online(1), soon, 20*time.Millisecond)
	old, err := open(rdb, redislock.WithReplicas(1, 2*time.Second)).Acquire(t.Context(), resource)
	require.NoError(t, err, "one replica has confirmed it")
	counter := rediskeys.Default().Counter(resource)
	require.Equal(t, strconv.FormatUint(uint64(old.Fence().Token)-1, 10), replicas[1].Get(t.Context(), counter).Val(), "it would hand out the same token")

	next, err := open(replicas[1]).TryAcquire(t.Context(), resource)
	require.NoError(t, err)
	require.Greater(t, next.Fence().Token, old.Fence().Token)
	nothing := func() error { return nil }
	require.ErrorIs(t, store.Write(old.Context(), resource, nothing), guard.ErrStale)
	require.NoError(t, store.Write(next.Context(), resource, nothing))
	require.NoError(t, next.Release(t.Context()))
	require.NoError(t, old.Release(t.Context()))
}

func TestWithReplicasRefusesNonsense(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.Redis(t))
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	for says, f := range map[string]func() (*redislock.Backend, error){
		"0 replicas":   func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithReplicas(0, time.Second)) },
		"timeout 0s":   func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithReplicas(1, 0)) },
		"timeout 1h":   func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithReplicas(1, time.Hour)) },
		"not *redis.R": func() (*redislock.Backend, error) { return redislock.New(ring, redislock.WithReplicas(1, time.Second)) },
	} {
		_, err := f()
		require.ErrorContains(t, err, says)
	}
}

// A notPassing back end has all of redislock's but Pass, which is a release there.
type notPassing struct {
	lock.Backend
	lock.Waiter
	lock.Joiner
	lock.Inspector
	lock.BatchRenewer
	lock.FairBackend
}
