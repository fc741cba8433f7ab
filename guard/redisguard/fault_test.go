package redisguard_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/redisguard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

// A link is the connections of a client, with faults.
type link struct {
	mu      sync.Mutex
	lose    bool     // the reply to the next script
	delay   bool     // the next script, until deliver
	held    [][]byte // what was delayed
	scripts int      // that were sent
}

func (l *link) options(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, PoolSize: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &linkConn{Conn: conn, link: l}, err
		},
	}
}

func (l *link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// deliver lets what was delayed arrive on a connection of its own, and returns the
// server's answer.
func (l *link) deliver(t *testing.T, addr string) string {
	t.Helper()
	require.Len(t, l.held, 1)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write(l.held[0])
	require.NoError(t, err)
	answer := make([]byte, 1000)
	n, err := conn.Read(answer)
	require.NoError(t, err)
	return string(answer[:n])
}

type linkConn struct {
	net.Conn
	link *link
	dead bool
	lose bool
}

func (c *linkConn) Write(b []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if bytes.Contains(b, []byte("evalsha")) {
		c.link.scripts++
		if c.link.delay {
			c.link.delay, c.dead = false, true
			c.link.held = append(c.link.held, bytes.Clone(b))
			return len(b), nil
		}
		c.lose, c.link.lose = c.link.lose, false
	}
	return c.Conn.Write(b)
}

func (c *linkConn) Read(b []byte) (int, error) {
	c.link.mu.Lock()
	dead, lose := c.dead, c.lose
	c.link.mu.Unlock()
	if dead {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if lose && err == nil {
		return 0, io.EOF
	}
	return n, err
}

var incrScript = redisguard.NewScript("return redis.call('INCR', KEYS[1])")

// The client would repeat it by itself: that it does not is what keeps a write from
// being done twice.
func TestAWriteWhoseReplyIsLostIsUnknownAndDoneOnce(t *testing.T) {
	t.Parallel()
	_, plain, resource := shared(t)
	l := new(link)
	g := open(t, connect(t, l.options(plain.Options().Addr)))
	ctx, f := raised(t, g, resource, 33, "A")
	key := g.Key(resource, "n")
	require.NoError(t, g.Run(ctx, incrScript, []string{key}).Err())
	require.NoError(t, g.Set(ctx, g.Key(resource, "s"), 1, 0))
	for name, write := range map[string]func() error{
		"script":  func() error { return g.Run(ctx, incrScript, []string{key}).Err() },
		"command": func() error { return g.Set(ctx, g.Key(resource, "s"), 2, 0) },
	} {
		l.set(func() { l.lose, l.scripts = true, 0 })
		err := write()
		require.ErrorIs(t, err, guard.ErrCommitUnknown, name)
		require.ErrorIs(t, err, io.EOF, name)
		require.ErrorContains(t, err, "acquire the lock again", name)
		require.Equal(t, 1, l.scripts, name)
	}
	require.Equal(t, "2", plain.Get(ctx, key).Val())
	require.Equal(t, "2", plain.Get(ctx, g.Key(resource, "s")).Val())

	// A raise is repeated, which is safe: S22.
	l.set(func() { l.lose, l.scripts = true, 0 })
	require.NoError(t, g.Raise(ctx, f))
	require.Equal(t, 2, l.scripts)
	l.set(func() { l.lose, l.scripts = true, 0 })
	next := fence(resource, 34, "A")
	require.NoError(t, g.Raise(ctx, next))
	require.NoError(t, g.Run(guard.NewContext(ctx, next), incrScript, []string{key}).Err())
}

// S24: an attempt that was given up arrives late. After the next raise it is refused.
func TestS24_ALateAttemptIsRefusedAfterTheNextRaise(t *testing.T) {
	t.Parallel()
	_, plain, resource := shared(t)
	l := new(link)
	addr := plain.Options().Addr
	g := open(t, connect(t, l.options(addr)))
	ctx, _ := raised(t, g, resource, 33, "A")
	key := g.Key(resource, "stock")
	require.NoError(t, g.Set(ctx, key, "first", 0))
	l.set(func() { l.delay = true })
	require.ErrorIs(t, g.Set(ctx, key, "late", 0), guard.ErrCommitUnknown)

	ctx, _ = raised(t, g, resource, 34, "A")
	require.Equal(t, "first", plain.Get(ctx, key).Val())
	require.NoError(t, g.Set(ctx, key, "second", 0))
	require.Contains(t, l.deliver(t, addr), "34", "the refusal names the fence in force")
	require.Equal(t, "second", plain.Get(ctx, key).Val())
}

func TestNothingIsSentWithADeadContextOrAClosedClient(t *testing.T) {
	t.Parallel()
	g, rdb, resource := shared(t)
	ctx, f := raised(t, g, resource, 33, "A")
	key := g.Key(resource, "stock")
	boss := io.ErrShortBuffer
	dead, cancel := context.WithCancelCause(ctx)
	cancel(boss)
	for _, err := range []error{g.Raise(dead, f), g.Set(dead, key, 1, 0)} {
		require.ErrorIs(t, err, boss)
		require.ErrorContains(t, err, "nothing was sent")
		require.NotErrorIs(t, err, guard.ErrCommitUnknown)
	}
	require.NoError(t, rdb.Close())
	require.ErrorIs(t, g.Raise(ctx, f), redis.ErrClosed)
	err := g.Set(ctx, key, 1, 0)
	require.ErrorIs(t, err, redis.ErrClosed)
	require.ErrorContains(t, err, "nothing was sent: the client is closed")

	nobody := open(t, connect(t, &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1}))
	err = nobody.Set(ctx, key, 1, 0)
	require.ErrorContains(t, err, "nothing was sent")
	require.NotErrorIs(t, err, guard.ErrCommitUnknown)
}

func TestTheContextBoundsTheCallsOfAHangingRedis(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := connect(t, &redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, PoolSize: 1})
	g := open(t, rdb)
	ctx, f := raised(t, g, "inventory:sku-42", 33, "A")
	key := g.Key("inventory:sku-42", "n")
	require.NoError(t, g.Run(ctx, incrScript, []string{key}).Err())
	require.NoError(t, server.Pause())
	short, cancel := context.WithTimeout(ctx, time.Second) // enough to send it
	defer cancel()
	err := g.Run(short, incrScript, []string{key}).Err()
	require.ErrorIs(t, err, guard.ErrCommitUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, g.Raise(short, f), context.DeadlineExceeded)
	require.NoError(t, server.Resume())
	// It was on its way, and has arrived.
	wait(t, func() error {
		if got := rdb.Get(ctx, key).Val(); got != "2" {
			return io.ErrNoProgress
		}
		return nil
	})
}

func TestAReadOnlyReplicaIsNamed(t *testing.T) {
	t.Parallel()
	master := servertest.NewRedis(t, localserver.RedisOptions{})
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--replicaof", host, port, "--repl-diskless-sync-delay", "0"}})
	g, onReplica := open(t, client(t, master.URL())), open(t, connect(t, &redis.Options{Addr: replica.Addr(), MaxRetries: -1}))
	ctx, f := raised(t, g, "r", 33, "A")
	key := g.Key("r", "stock")
	rdb := client(t, replica.URL())
	wait(t, func() error { return rdb.HGet(ctx, "fencing:raised:{r}", "token").Err() })
	for _, err := range []error{onReplica.Raise(ctx, fence("r", 34, "B")), onReplica.Set(ctx, key, 1, 0)} {
		require.ErrorContains(t, err, "read-only replica; connect to the master")
		require.True(t, redis.HasErrorPrefix(err, "READONLY"), "%v", err)
	}
	require.NoError(t, g.Raise(ctx, f), "the raise on the replica left nothing")
}

func TestWhatIsNoFenceIsLeftAlone(t *testing.T) {
	t.Parallel()
	g, rdb, resource := shared(t)
	f := fence(resource, 33, "A")
	ctx, key := guard.NewContext(t.Context(), f), g.Key(resource, "stock")
	fenceKey := "fencing:raised:{" + resource + "}"
	for name, damage := range map[string]func() error{
		"a string":       func() error { return rdb.Set(ctx, fenceKey, "5", 0).Err() },
		"another hash":   func() error { return rdb.HSet(ctx, fenceKey, "colour", "red").Err() },
		"no nonce":       func() error { return rdb.HSet(ctx, fenceKey, "token", 5).Err() },
		"no token":       func() error { return rdb.HSet(ctx, fenceKey, "token", "007", "nonce", "n").Err() },
		"a negative one": func() error { return rdb.HSet(ctx, fenceKey, "token", "-7", "nonce", "n").Err() },
	} {
		require.NoError(t, rdb.Del(ctx, fenceKey).Err())
		require.NoError(t, damage(), name)
		before := rdb.Dump(ctx, fenceKey).Val()
		for _, err := range []error{g.Raise(ctx, f), g.Set(ctx, key, 1, 0)} {
			require.ErrorContains(t, err, fenceKey+" has something that is no fence; choose another prefix", name)
		}
		require.Equal(t, before, rdb.Dump(ctx, fenceKey).Val(), name)
		require.Zero(t, rdb.Exists(ctx, key).Val(), name)
	}
	// Beyond the integers: neither greater nor smaller, and no fence of ours.
	require.NoError(t, rdb.Del(ctx, fenceKey).Err())
	require.NoError(t, rdb.HSet(ctx, fenceKey, "token", "99999999999999999999", "nonce", "n").Err())
	require.Error(t, g.Raise(ctx, f))
	require.Error(t, g.Set(ctx, key, 1, 0))
}

func TestS14_AServerThatEvictsFencesIsRefused(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}})
	rdb := client(t, server.URL())
	g := open(t, rdb)
	err := g.Raise(t.Context(), fence("r", 33, "A"))
	require.ErrorIs(t, err, redisguard.ErrEvicts)
	require.ErrorContains(t, err, "allkeys-lru")
	require.Zero(t, rdb.DBSize(t.Context()).Val())
	for _, settings := range [][2]string{{"100mb", "noeviction"}, {"100mb", "volatile-lru"}, {"0", "allkeys-lru"}} {
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", settings[0]).Err())
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", settings[1]).Err())
		require.NoError(t, g.Raise(t.Context(), fence("r"+settings[0]+settings[1], 33, "A")), settings)
	}
	// Who may not ask is not asked for more.
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "app", "on", ">s3cret", "~*", "+@all", "-info").Err())
	app := open(t, connect(t, &redis.Options{Addr: server.Addr(), Username: "app", Password: "s3cret"}))
	require.NoError(t, app.Raise(t.Context(), fence("app", 33, "A")))
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "app", "-hset").Err())
	err = app.Raise(t.Context(), fence("app", 34, "A"))
	require.ErrorContains(t, err, "the user needs EVAL")
	require.NotContains(t, err.Error(), "s3cret")
}
