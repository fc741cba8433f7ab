package redislock_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// givenUp is longer than a feed needs to come back to its listeners, and shorter than
// whatever else would wake them: a client that only listens reads the topology of its
// Cluster once a minute.
const givenUp = 20 * time.Second

// A network that forgets the connection on which the releases are heard, and no other,
// costs a waiter seconds: the feed notices that nobody answers its pings.
func TestAFeedThatHearsNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	url := servertest.Redis(t)
	var network listening
	b, err := redislock.New(network.client(t, url))
	require.NoError(t, err)
	r := request()
	r.Resource = t.Name()
	wake, stop := b.Watch(r)
	defer stop()
	hear(t, wake, "not in effect")

	// Not as long as it is answered, however little there is to tell.
	pings := network.pings.Load()
	require.Eventually(t, func() bool { return network.pings.Load() >= pings+5 }, soon, 10*time.Millisecond, "it asks for no sign of life")
	require.EqualValues(t, 1, network.feeds.Load(), "a feed that is answered was given up")
	require.Empty(t, wake, "there was nothing to tell")

	network.forget()
	select {
	case <-wake: // what was missed may have been a release
	case <-time.After(givenUp):
		t.Fatal("a feed that hears nothing is not given up")
	}
	pass(t, b, r.Resource)
	hear(t, wake, "the feed that came back is deaf")
}

// The same for one who waits for a lock, and who would not ask by himself for an hour.
func TestAWaiterWhoseFeedIsForgottenIsWoken(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{"plain": nil, "fair": {lock.WithFair()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := servertest.Redis(t)
			var network listening
			prefix := redislock.WithPrefix("test-" + name + "-" + request().Nonce)
			open := func(rdb *redis.Client) *lock.Locker {
				b, err := redislock.New(rdb, prefix)
				require.NoError(t, err)
				l, err := lock.New(b, append(opts, lock.WithTTL(time.Hour), lock.WithRetryWait(time.Hour))...)
				require.NoError(t, err)
				t.Cleanup(func() { _ = l.Close() })
				return l
			}
			held, err := open(client(t, url)).Acquire(t.Context(), "inventory:sku-42")
			require.NoError(t, err)
			rdb := network.client(t, url)
			asked := evaluations{make(answers, 2)}
			rdb.AddHook(asked)
			next := make(chan error, 1)
			waiting := open(rdb)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				s, err := waiting.Acquire(ctx, "inventory:sku-42")
				if err == nil {
					err = s.Release(ctx)
				}
				next <- err
			}()
			// Refused, and once more when it began to listen: from then on it only does.
			for range 2 {
				select {
				case <-asked.answers:
				case <-time.After(soon):
					t.Fatal("it does not ask")
				}
			}
			network.forget()
			require.NoError(t, held.Release(t.Context()))
			select {
			case err := <-next:
				require.NoError(t, err)
			case <-time.After(givenUp):
				t.Fatal("the lock is free, and nobody is told")
			}
		})
	}
}

// Evaluations are the answers to scripts alone: those to the commands with which a
// connection begins tell nothing of a lock.
type evaluations struct{ answers }

func (e evaluations) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	noted := e.answers.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			return noted(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// Listening is a network that can forget the connections on which a client listens.
type listening struct {
	feeds, pings, forgotten atomic.Int64
}

// forget loses what is sent on the present connections from now on, either way.
func (n *listening) forget() { n.forgotten.Store(n.feeds.Load()) }

func (n *listening) client(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &listeningConn{Conn: conn, network: n}, err
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

type listeningConn struct {
	net.Conn
	network *listening
	number  atomic.Int64 // of those that listen, 0 if it does not
}

func (c *listeningConn) forgotten() bool {
	n := c.number.Load()
	return n > 0 && n <= c.network.forgotten.Load()
}

func (c *listeningConn) Write(p []byte) (int, error) {
	switch {
	case c.number.Load() == 0 && bytes.Contains(p, []byte("\r\nsubscribe\r\n")):
		c.number.Store(c.network.feeds.Add(1))
	case c.number.Load() > 0 && bytes.Contains(p, []byte("\r\nping\r\n")):
		c.network.pings.Add(1)
	}
	if c.forgotten() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *listeningConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.forgotten() {
			return n, err
		}
	}
}
