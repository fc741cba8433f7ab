package redislock_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

const many = 40 // callers, so that most of their calls go in batches

// together calls do many times at once, and returns how many calls failed.
func together(do func(i int) error) int {
	var failed atomic.Int64
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			if do(i) != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return int(failed.Load())
}

func nothing(context.Context) error { return nil }

func order(i int) string { return fmt.Sprint("order:", i) }

func TestContextsBoundTheBatchesOfAHangingRedis(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	l := locker(t, rdb)
	require.NoError(t, l.Do(t.Context(), "warm", nothing))
	require.NoError(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	require.Equal(t, many, together(func(i int) error { _, err := l.TryAcquire(ctx, order(i)); return err }))
	require.Less(t, time.Since(begun), 2*time.Second)
	require.NoError(t, server.Resume())
	for i := range many {
		require.Eventually(t, func() bool {
			next, err := l.TryAcquire(t.Context(), order(i))
			return err == nil && next.Release(t.Context()) == nil
		}, soon, 10*time.Millisecond, "an attempt that was given up holds the lock")
	}
}

// A firewall that has forgotten the connections: what is sent on them is lost without
// an error, and nothing but the contexts of calls ends the wait.
func TestTheBatchesOnForgottenConnectionsEnd(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL(servertest.Redis(t))
	require.NoError(t, err)
	o.ContextTimeoutEnabled, o.ReadTimeout, o.MaxRetries = true, -1, -1
	var forgotten atomic.Int64 // how many connections
	var dialled atomic.Int64
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &forgettable{conn, dialled.Add(1), &forgotten}, err
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	l := locker(t, rdb)
	do := func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return l.Do(ctx, t.Name()+order(i), nothing)
	}
	require.Zero(t, together(do))
	forgotten.Store(dialled.Load())
	together(do)
	require.Eventually(t, func() bool { return do(0) == nil }, soon, 10*time.Millisecond, "the back end does not come back")
}

type forgettable struct {
	net.Conn
	number    int64
	forgotten *atomic.Int64
}

func (c *forgettable) Write(p []byte) (int, error) {
	if c.number <= c.forgotten.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// The calls to the other nodes of a Cluster go on while one hangs.
func TestANodeThatHangsCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	c := servertest.NewRedisCluster(t, 3, 0)
	rdb := clusterClient(t, c)
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	l, err := lock.New(b)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	byNode := make(map[string][]string)
	for i := range 40 * many {
		node, err := rdb.MasterForKey(t.Context(), rediskeys.Default().Lock(order(i)))
		require.NoError(t, err)
		byNode[node.Options().Addr] = append(byNode[node.Options().Addr], order(i))
	}
	require.Len(t, byNode, 3)
	var hangs string
	var theirs, others []string
	for addr, names := range byNode {
		if hangs == "" {
			hangs, theirs = addr, names
			continue
		}
		others = append(others, names[:many/2]...)
	}
	do := func(ctx context.Context, names []string) func(i int) error {
		return func(i int) error { return l.Do(ctx, names[i], nothing) }
	}
	require.Zero(t, together(do(t.Context(), theirs)))
	require.Zero(t, together(do(t.Context(), others)))

	node := nodeAt(t, c, hangs)
	require.NoError(t, node.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	stuck := make(chan int, 1)
	go func() { stuck <- together(do(ctx, theirs)) }()
	for range 10 {
		require.Zero(t, together(do(ctx, others)))
	}
	require.Empty(t, stuck, "the node did not hang")
	require.NoError(t, node.Resume())
	<-stuck
}
