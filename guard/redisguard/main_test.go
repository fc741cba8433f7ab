package redisguard_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/redisguard"
	"github.com/go-fencing/fencing/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// soon is for what takes a few seconds on a machine that is idle.
const soon = time.Minute

func client(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	return connect(t, o)
}

func connect(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func open(t testing.TB, rdb redis.UniversalClient, opts ...redisguard.Option) *redisguard.Guard {
	t.Helper()
	g, err := redisguard.New(rdb, opts...)
	require.NoError(t, err)
	return g
}

// shared returns a guard on the server that the tests share, and a resource of its own.
func shared(t testing.TB, opts ...redisguard.Option) (*redisguard.Guard, *redis.Client, string) {
	t.Helper()
	rdb := client(t, servertest.Redis(t))
	return open(t, rdb, opts...), rdb, "inventory:" + rand.Text()
}

func fence(resource string, token guard.Token, holder string) guard.Fence {
	return guard.Fence{Resource: resource, Token: token, Nonce: rand.Text(), Holder: holder}
}

// raised raises a fence and returns a context that carries it.
func raised(t testing.TB, g *redisguard.Guard, resource string, token guard.Token, holder string) (context.Context, guard.Fence) {
	t.Helper()
	f := fence(resource, token, holder)
	require.NoError(t, g.Raise(context.Background(), f))
	return guard.NewContext(context.Background(), f), f
}

// wait calls check until it succeeds.
func wait(t testing.TB, check func() error) {
	t.Helper()
	var last error
	if !assert.Eventually(t, func() bool { last = check(); return last == nil }, soon, 20*time.Millisecond) {
		require.FailNow(t, "it did not happen", "%v", last)
	}
}

type guardAndResource struct {
	g        *redisguard.Guard
	resource string
}
