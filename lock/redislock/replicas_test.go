package redislock_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
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
		locktest.Run(t, func(*testing.T) lock.Backend { return b })
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
