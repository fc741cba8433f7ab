package redlock_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const resource = "inventory:sku-42"

// A cluster is the nodes of one test, which may break them.
type cluster struct {
	servers []*localserver.Redis
	clients []redis.UniversalClient
}

func start(t testing.TB, n int) *cluster {
	t.Helper()
	c := new(cluster)
	for range n {
		s := servertest.NewRedis(t, localserver.RedisOptions{})
		c.servers = append(c.servers, s)
	}
	c.clients = c.connect(t)
	return c
}

// connect returns clients of another process, so to say.
func (c *cluster) connect(t testing.TB) []redis.UniversalClient {
	t.Helper()
	var clients []redis.UniversalClient
	for _, s := range c.servers {
		// A node that hangs is not to be found out by its client.
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Hour})
		t.Cleanup(func() { _ = rdb.Close() })
		clients = append(clients, rdb)
	}
	return clients
}

// backend returns a back end of its own clients.
func (c *cluster) backend(t testing.TB, opts ...redlock.Option) *redlock.Backend {
	t.Helper()
	b, err := redlock.New(c.connect(t), opts...)
	require.NoError(t, err)
	return b
}

// trusting is for tests in which no node forgets.
func trusting() redlock.Option { return redlock.WithRestartDelay(0) }

// patient lets the machine be slow.
func patient() redlock.Option { return redlock.WithNodeTimeout(10 * time.Second) }

func request() lock.Request {
	return lock.Request{Resource: resource, Nonce: rand.Text(), Holder: "web-1", TTL: time.Minute}
}

// take acquires a lock that is free, or about to be: a release returns when a
// majority has it, and an acquisition does not wait for the slow ones of the rest.
func take(t testing.TB, b *redlock.Backend, r lock.Request) guard.Token {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		token, err := b.Acquire(t.Context(), r)
		if err == nil {
			return token
		}
		if !errors.Is(err, lock.ErrHeld) || time.Now().After(end) {
			require.NoError(t, err)
		}
	}
}

// establish waits until the nodes are no longer new.
func (c *cluster) establish(t testing.TB) {
	t.Helper()
	b := c.backend(t, redlock.WithRestartDelay(10*time.Millisecond), redlock.WithNodeTimeout(300*time.Millisecond))
	require.Eventually(t, func() bool {
		r := request()
		r.Resource = "established:" + r.Nonce
		if _, err := b.Acquire(t.Context(), r); err != nil {
			return false
		}
		return c.established(t, b) && b.Release(t.Context(), r) == nil
	}, 60*time.Second, 10*time.Millisecond, "the nodes stay new")
}

func (c *cluster) established(t testing.TB, b *redlock.Backend) bool {
	for _, rdb := range c.clients {
		if rdb.HGet(t.Context(), b.FenceKey(), "run").Val() == "" {
			return false
		}
	}
	return true
}

// eventually takes the lock when it becomes free.
func eventually(t testing.TB, b *redlock.Backend, r lock.Request, within time.Duration) guard.Token {
	t.Helper()
	var token guard.Token
	var err error
	require.Eventually(t, func() bool {
		token, err = b.Acquire(t.Context(), r)
		return err == nil
	}, within, 5*time.Millisecond, "%v", fmt.Sprint(err))
	return token
}
