package redislock_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
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

// What the users of other lock libraries reported, on a real server. More of it is
// in the tests of package lock and in locktest.

// A release on a cancelled context must not leave the lock for a whole TTL.
func TestReleaseOnACancelledContextFreesTheLock(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	l, err := lock.New(b, lock.WithTTL(time.Hour))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := l.Acquire(ctx, "inventory:sku-42")
	require.NoError(t, err)
	cancel()
	require.NoError(t, s.Release(ctx))
	requireFree(t, b, "inventory:sku-42")
}

func requireFree(t *testing.T, b *redislock.Backend, resource string, message ...any) {
	t.Helper()
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Zero(t, h.Members, message...)
}

// An acquisition whose reply is lost must not leave it either.
func TestALostReplyLeavesNoLock(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	var deaf atomic.Bool
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Second,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{conn, &deaf}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	l, err := lock.New(b, lock.WithTTL(time.Hour))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, l.Do(t.Context(), "warm", func(context.Context) error { return nil }))

	direct := client(t, server.URL())
	deaf.Store(true)
	_, err = l.TryAcquire(t.Context(), "inventory:sku-42")
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrHeld, "an outcome that is unknown is not a lock that is held")
	deaf.Store(false)
	require.Equal(t, "1", direct.Get(t.Context(), rediskeys.Default().Counter("inventory:sku-42")).Val(), "the script has run")
	seen, err := redislock.New(direct)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		h, err := seen.Inspect(t.Context(), "inventory:sku-42")
		return err == nil && h.Members == 0
	}, soon, 10*time.Millisecond)
	require.NoError(t, l.Do(t.Context(), "inventory:sku-42", func(context.Context) error { return nil }))
}

// A deafConn sends, and loses what comes back.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// No wall clock of a client goes over the wire: neither its skew nor a jump matters.
func TestNoTimeOfDayIsSent(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.Redis(t))
	var sent wireTap
	rdb.AddHook(&sent)
	for _, opts := range [][]lock.Option{{lock.WithTTL(time.Second)}, {lock.WithTTL(time.Second), lock.WithFair()}} {
		l := locker(t, rdb, opts...)
		s, err := l.Acquire(t.Context(), "inventory:sku-42")
		require.NoError(t, err)
		_, err = l.TryAcquire(t.Context(), "inventory:sku-42")
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Eventually(t, func() bool { return sent.count("evalsha") >= 3 }, soon, 10*time.Millisecond)
		require.NoError(t, s.Release(t.Context()))
	}
	now := float64(time.Now().Unix())
	for _, n := range sent.all() {
		for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
			require.Greater(t, max(n/(now*unit), now*unit/n), 1.1, "%v looks like a time of day", n)
		}
	}
}

// A wireTap notes the numbers among the arguments of commands.
type wireTap struct {
	hook
	mu      sync.Mutex
	numbers []float64
	calls   map[string]int
}

func (w *wireTap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.note(cmd)
		return next(ctx, cmd)
	}
}

func (w *wireTap) note(cmd redis.Cmder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = make(map[string]int)
	}
	w.calls[cmd.Name()]++
	for _, arg := range cmd.Args() {
		if n, err := strconv.ParseFloat(fmt.Sprint(arg), 64); err == nil && n > 0 {
			w.numbers = append(w.numbers, n)
		}
	}
}

func (w *wireTap) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[name]
}

func (w *wireTap) all() []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.numbers
}

// Locks come and go; what stays in Redis is a bounded number of counters.
func TestAMillionResourcesLeaveNoMillionKeys(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb, redislock.WithShards(16))
	require.NoError(t, err)
	l, err := lock.New(b)
	require.NoError(t, err)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 250 {
				if err := l.Do(t.Context(), fmt.Sprintf("order:%d:%d", g, i), func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	// The marks of the releases go within seconds.
	require.Eventually(t, func() bool { return rdb.DBSize(t.Context()).Val() <= 16 }, soon, 100*time.Millisecond)
	require.NoError(t, l.Close())
}

// The watchdog ends with its lease, however it ended.
func TestNothingIsRenewedAfterTheRelease(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.Redis(t))
	var sent wireTap
	rdb.AddHook(&sent)
	l := locker(t, rdb, lock.WithTTL(300*time.Millisecond))
	s, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return sent.count("evalsha") >= 4 }, soon, 10*time.Millisecond, "renewed while it is held")
	require.NoError(t, s.Release(t.Context()))
	before := sent.count("evalsha")
	<-time.After(600 * time.Millisecond)
	require.Equal(t, before, sent.count("evalsha"))
}

// A release that failed is not forgotten half: the process that failed acquires again
// as soon as the lock has ended, and so does everybody else.
func TestAFailedReleaseDoesNotBlockItsProcess(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	l, err := lock.New(b, lock.WithTTL(2*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	require.NoError(t, server.Pause())
	require.Error(t, s.Release(t.Context()))
	require.NoError(t, server.Resume())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	next, err := l.Acquire(ctx, "inventory:sku-42")
	require.NoError(t, err)
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	require.NoError(t, next.Release(t.Context()))
}

// A full memory must not cost what makes the tokens grow, where eviction can spare it.
func TestAFullRedisSaysSo(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--maxmemory-policy", "noeviction"}})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	r := request()
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	other := request()
	other.Resource = "another"
	_, err = b.Acquire(t.Context(), other)
	require.ErrorContains(t, err, "OOM")
	require.NotErrorIs(t, err, lock.ErrHeld)
	require.True(t, strings.Contains(err.Error(), "another"))
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, b.Release(t.Context(), r))
	_, err = b.Acquire(t.Context(), other)
	require.NoError(t, err)
}
