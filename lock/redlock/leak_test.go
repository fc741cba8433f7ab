package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/lock/redlock"
)

// Not parallel: it looks at the goroutines of the process.
func TestNothingIsLeftBehind(t *testing.T) {
	c := start(t, 3)
	before := goleak.IgnoreCurrent()
	var clients []redis.UniversalClient
	for _, s := range c.servers {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true}))
	}
	b, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(200*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, c.servers[1].Pause())
	r := hourlong()
	eventually(t, b, r, 30*time.Second)
	_ = b.Renew(t.Context(), r)
	_, _ = b.Acquire(t.Context(), request())
	_ = b.Release(t.Context(), r)
	for _, rdb := range clients {
		require.NoError(t, rdb.Close())
	}
	for range 30 { // each looks for half a second
		if err = goleak.Find(before); err == nil {
			break
		}
	}
	require.NoError(t, err)
	require.NoError(t, c.servers[1].Resume())
}
