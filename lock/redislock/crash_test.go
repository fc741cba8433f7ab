package redislock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
)

// A server that is killed while its lock is held and waited for. With what it has on
// disk the lock goes on; without, the holder is told, and the store repairs the
// counter, which began anew.
func TestAKilledServerThatComesBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		kept bool
	}{
		"with its data":    {[]string{"--appendonly", "yes", "--appendfsync", "always"}, true},
		"without its data": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.NewRedis(t, localserver.RedisOptions{Args: c.args})
			p := newParty(t, func() redis.UniversalClient { return client(t, server.URL()) }, lock.WithTTL(20*time.Second))
			p.usable("inventory:sku-42")
			s := p.acquire(p.first, "inventory:sku-42")
			waiting := p.wait("inventory:sku-42")
			require.NoError(t, server.Kill())
			require.NoError(t, server.Restart(t.Context()))
			if c.kept {
				require.NoError(t, s.Release(t.Context()), "the lock was on disk")
				require.NoError(t, <-waiting)
			} else {
				require.NoError(t, <-waiting, "the server knows of no holder")
				require.ErrorIs(t, s.Release(t.Context()), lock.ErrLost)
			}
			p.usable("inventory:sku-42")
		})
	}
}

// Connections that an operator, or a load balancer, cuts cost neither lease nor wait.
func TestKilledConnectionsCostNothing(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	admin := client(t, server.URL())
	p := newParty(t, func() redis.UniversalClient { return client(t, server.URL()) }, lock.WithTTL(10*time.Second))
	s := p.acquire(p.first, "inventory:sku-42")
	waiting := p.wait("inventory:sku-42")
	for range 5 {
		for _, kind := range []string{"normal", "pubsub"} {
			require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", kind, "SKIPME", "yes").Err())
		}
		<-time.After(100 * time.Millisecond)
	}
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, <-waiting)
	p.usable("inventory:sku-42")
}

// A flush of the scripts in the middle of everything.
func TestScriptFlushWhileItIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	admin := client(t, server.URL())
	for _, opts := range [][]lock.Option{nil, {lock.WithFair()}} {
		p := newParty(t, func() redis.UniversalClient { return client(t, server.URL()) }, append(opts, lock.WithTTL(time.Second))...)
		s := p.acquire(p.first, "inventory:sku-42")
		waiting := p.wait("inventory:sku-42")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for ctx.Err() == nil { // long enough for some renewals
			require.NoError(t, admin.ScriptFlush(t.Context()).Err())
			<-time.After(20 * time.Millisecond)
		}
		require.NoError(t, s.Release(t.Context()))
		require.NoError(t, <-waiting)
		p.usable("inventory:sku-42")
	}
}
