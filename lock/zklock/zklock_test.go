package zklock_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/zklock"
)

func TestMain(m *testing.M) { servertest.Main(m) }

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

func TestBackend(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, servers) })
}
