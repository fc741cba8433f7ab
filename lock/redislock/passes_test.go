package redislock_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"strings"
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

// Whatever is wrong with the counter is a matter of those who acquire: the lock is free,
// its releaser need not be told that the outcome is unknown, and who waits is woken.
func TestABrokenCounterDoesNotKeepALockFromBeingFreed(t *testing.T) {
	t.Parallel()
	number := func(s string) func(*redis.Client, string) error {
		return func(rdb *redis.Client, key string) error { return rdb.Set(t.Context(), key, s, 0).Err() }
	}
	for broken, breakIt := range map[string]func(rdb *redis.Client, key string) error{
		"end of the integers": number("9223372036854775807"),
		"negative":            number("-5"),
		"no number":           number("no number"),
		"hash": func(rdb *redis.Client, key string) error {
			return rdb.HSet(t.Context(), key, "theirs", "1").Err()
		},
	} {
		for what, free := range map[string]func(b *redislock.Backend, r, next lock.Request) error{
			"release": func(b *redislock.Backend, r, _ lock.Request) error { return b.Release(t.Context(), r) },
			"pass": func(b *redislock.Backend, r, next lock.Request) error {
				token, err := b.Pass(t.Context(), r, next)
				require.Zero(t, token)
				return err
			},
		} {
			t.Run(what+" "+broken, func(t *testing.T) {
				t.Parallel()
				b, rdb, scheme := open(t)
				r, next := request(), request()
				_, err := b.Acquire(t.Context(), r)
				require.NoError(t, err)
				wake := listen(t, b, next)
				requireHeldAgainst(t, b, next)
				counter := scheme.Counter(r.Resource)
				require.NoError(t, rdb.Del(t.Context(), counter).Err())
				require.NoError(t, breakIt(rdb, counter))
				before := rdb.Dump(t.Context(), counter).Val()
				require.NoError(t, free(b, r, next))
				requireFree(t, b, r.Resource)
				hear(t, wake, "nobody is woken")
				require.Equal(t, before, rdb.Dump(t.Context(), counter).Val(), "the counter was changed")
			})
		}
	}
}

// The locker counts on the whole TTL from when it sent the pass; a grant, which the first
// copy of it was here since others wait too, is for 2 s.
func TestARepeatedPassLastsAsLongAsItSays(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	listen(t, b, lock.Request{Resource: request().Resource})
	r, next, third := request(), request(), request()
	first, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	requireHeldAgainst(t, b, next, third)
	left := func() time.Duration { return rdb.PTTL(t.Context(), scheme.Lock(r.Resource)).Val() }

	token, err := b.Pass(t.Context(), r, next)
	require.NoError(t, err)
	require.Zero(t, token, "others were refused: it is their turn, if it is")
	require.LessOrEqual(t, left(), 2*time.Second)
	token, err = b.Pass(t.Context(), r, next) // the reply was lost
	require.NoError(t, err)
	require.Equal(t, first+1, token)
	require.Greater(t, left(), next.TTL/2)
	again, err := b.Pass(t.Context(), r, next)
	require.NoError(t, err)
	require.Equal(t, token, again)
}

// The same through lockers.
func TestARepeatedPassMakesNoTwoHolders(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	var once onceDeaf
	open := func(rdb *redis.Client) *lock.Locker { return lockerWithPrefix(t, rdb, rediskeys.Default().Prefix) }
	p, q, direct := open(once.client(t, server)), open(client(t, server.URL())), client(t, server.URL())
	key := rediskeys.Default().Lock("inventory:sku-42")

	// A pass before the one that counts: then the server knows the script.
	held, err := p.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	next := waitInBackground(t, p)
	waitForListeners(t, direct, key, 1)
	require.NoError(t, held.Release(t.Context()))
	held = receive(t, next, "not passed on")

	second := waitInBackground(t, p)
	waitForListeners(t, direct, key, 1)
	third := waitInBackground(t, q)
	waitForListeners(t, direct, key, 2)
	once.deaf.Store(true)
	require.NoError(t, held.Release(t.Context()))
	require.EqualValues(t, 1, once.lost.Load(), "the reply was not lost")
	s := receive(t, second, "not passed on")
	// Between two looks at a deadline that did not change.
	var deadline time.Time
	var left time.Duration
	require.Eventually(t, func() bool {
		deadline = s.Deadline()
		left = direct.PTTL(t.Context(), key).Val()
		return s.Deadline().Equal(deadline)
	}, soon, time.Millisecond)
	require.Less(t, time.Until(deadline), left, "it counts on more than the server grants")
	require.Empty(t, third, "two have the lock")
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, receive(t, third, "its turn").Release(t.Context()))
}

// onceDeaf loses the reply to one script, when deaf is set, and the connection with it.
type onceDeaf struct {
	deaf  atomic.Bool
	lost  atomic.Int64
	kinds string // how the reply begins: ":$" if it is empty
}

// client returns one that repeats what it got no reply to.
func (o *onceDeaf) client(t *testing.T, server *localserver.Redis) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: 3,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &onceDeafConn{conn, o}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

type onceDeafConn struct {
	net.Conn
	once *onceDeaf
}

func (c *onceDeafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && strings.ContainsRune(cmp.Or(c.once.kinds, ":$"), rune(p[0])) && c.once.deaf.CompareAndSwap(true, false) { // not what a feed hears
		c.once.lost.Add(1)
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}
