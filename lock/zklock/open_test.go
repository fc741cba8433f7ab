package zklock_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

const (
	resource = "inventory:sku-42"
	within   = 90 * time.Second // for whatever must happen at last
)

// open returns a back end whose session is long enough for the TTLs of the tests.
func open(t testing.TB, servers []string, opts ...zklock.Option) *zklock.Backend {
	t.Helper()
	b, err := zklock.New(servers, append([]zklock.Option{zklock.WithSessionTimeout(80 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func request() lock.Request {
	return lock.Request{Resource: "inventory:" + rand.Text(), Nonce: rand.Text(), Holder: "web-1", TTL: time.Minute}
}

func rival(r lock.Request) lock.Request {
	r.Nonce = rand.Text()
	return r
}

func acquire(t testing.TB, b *zklock.Backend, r lock.Request) guard.Token {
	t.Helper()
	token, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	return token
}

func locker(t testing.TB, b lock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// lease acquires a free lock for a TTL that a busy machine may need to connect.
func lease(t testing.TB, l *lock.Locker, name string) (s *lock.Lease) {
	t.Helper()
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = l.Acquire(t.Context(), name)
		return err == nil
	}, within, time.Millisecond)
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// client returns a plain client, to look at nodes and to make some by hand.
func client(t testing.TB, servers []string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect(servers, time.Minute, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// nodes returns the names in the directory of a resource.
func nodes(t testing.TB, c *zk.Conn, b *zklock.Backend, resource string) []string {
	t.Helper()
	_, err := c.Sync(b.Dir(resource))
	require.NoError(t, err)
	names, _, err := c.Children(b.Dir(resource))
	if errors.Is(err, zk.ErrNoNode) { // ZooKeeper has removed the empty directory
		return nil
	}
	require.NoError(t, err)
	return names
}

// keep makes a node in the directory of a resource that is no lock. ZooKeeper removes an
// empty directory at its own time; making it again is a trip more, and its sequence
// begins anew.
func keep(t testing.TB, c *zk.Conn, b *zklock.Backend, resource string) {
	t.Helper()
	_, err := c.Create(b.Dir(resource)+"/keep", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
}
