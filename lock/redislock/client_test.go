package redislock_test

import (
	"context"
	"crypto/rand"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// The whole lock on a real server that stops answering: the loss is on time.
func TestLossOnTimeWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	l, err := lock.New(b, lock.WithTTL(time.Second))
	require.NoError(t, err)
	s, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	require.NoError(t, server.Pause())
	select {
	case <-s.Lost():
	case <-time.After(10 * time.Second):
		t.Fatal("no loss signalled while Redis hangs")
	}
	// Package lock tests that it is to the nanosecond. The client alone would wait
	// for 3s, four times.
	require.WithinDuration(t, s.Deadline(), time.Now(), 2*time.Second)
	require.ErrorIs(t, context.Cause(s.Context()), lock.ErrLost)
	require.NoError(t, server.Resume())
	require.ErrorIs(t, s.Release(t.Context()), lock.ErrLost)
	next, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	require.NoError(t, next.Release(t.Context()))
	require.NoError(t, l.Close())
}

// The context of a call ends it although the client's read timeout is 3s.
func TestContextsBoundTheCallsOfAHangingRedis(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	l := locker(t, rdb)
	require.NoError(t, l.Do(t.Context(), "warm", func(context.Context) error { return nil }))

	require.NoError(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := l.Acquire(ctx, "inventory:sku-42")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begun), 2*time.Second)
	require.NoError(t, server.Resume())
	require.Eventually(t, func() bool {
		next, err := l.TryAcquire(t.Context(), "inventory:sku-42")
		return err == nil && next.Release(t.Context()) == nil
	}, 10*time.Second, 10*time.Millisecond, "the attempt that was given up holds the lock")
}

// A network that drops what is sent lets a dial hang, for 25s with go-redis'
// defaults; the TTL and the bound of a release end that.
func TestAHangingDialEndsWithTheCall(t *testing.T) {
	t.Parallel()
	var blackhole atomic.Bool
	url := servertest.Redis(t)
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if blackhole.Load() {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	o.PoolSize = 1
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	l := locker(t, rdb, lock.WithTTL(2*time.Second))
	s, err := l.Acquire(t.Context(), rand.Text())
	require.NoError(t, err)

	blackhole.Store(true)
	require.NoError(t, client(t, url).ClientKillByFilter(t.Context(), "ADDR", clientAddr(t, rdb)).Err())
	begun := time.Now()
	_, err = l.TryAcquire(t.Context(), rand.Text())
	require.ErrorContains(t, err, "no answer within the TTL of 2s")
	require.Less(t, time.Since(begun), 10*time.Second)
	select {
	case <-s.Lost():
	case <-time.After(10 * time.Second):
		t.Fatal("no loss signalled")
	}
	blackhole.Store(false)
	require.Eventually(t, func() bool {
		return l.Do(t.Context(), rand.Text(), func(context.Context) error { return nil }) == nil
	}, 20*time.Second, 10*time.Millisecond, "the locker does not come back")
	kept, err := l.Acquire(t.Context(), rand.Text())
	require.NoError(t, err)
	select {
	case <-kept.Lost():
		t.Fatal("a fresh lease is not renewed after the network has healed")
	case <-time.After(3 * time.Second):
	}
	require.NoError(t, kept.Release(t.Context()))
}

func locker(t *testing.T, rdb redis.UniversalClient, opts ...lock.Option) *lock.Locker {
	t.Helper()
	return lockerWithPrefix(t, rdb, "test-"+rand.Text(), opts...)
}

// lockerWithPrefix is for several of one prefix.
func lockerWithPrefix(t *testing.T, rdb redis.UniversalClient, prefix string, opts ...lock.Option) *lock.Locker {
	t.Helper()
	b, err := redislock.New(rdb, redislock.WithPrefix(prefix))
	require.NoError(t, err)
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// clientAddr is the address that the server knows the client's only connection by.
func clientAddr(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	info, err := rdb.ClientInfo(t.Context()).Result()
	require.NoError(t, err)
	return info.Addr
}

// The caller's client keeps its options, and its hooks see the lock's commands.
func TestTheCallersClientIsUsedAsItIs(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.Redis(t))
	var h hook
	rdb.AddHook(&h)
	l := locker(t, rdb)
	require.NoError(t, l.Do(t.Context(), "inventory:sku-42", func(context.Context) error { return nil }))
	require.NoError(t, l.Close())
	require.GreaterOrEqual(t, h.commands.Load(), int64(2))
	require.False(t, rdb.Options().ContextTimeoutEnabled)
	require.NoError(t, rdb.Ping(t.Context()).Err(), "the caller's client was closed")
}

type hook struct{ commands atomic.Int64 }

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.commands.Add(1)
		return next(ctx, cmd)
	}
}

// What answers is no Redis, and hangs up; or it never answers.
func TestAServerThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn){"hangs up": func(c net.Conn) { _ = c.Close() }, "hangs": func(net.Conn) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = other.Close() }()
			go func() {
				for {
					c, err := other.Accept()
					if err != nil {
						return
					}
					serve(c)
				}
			}()
			address := other.Addr().String()
			rdb := redis.NewClient(&redis.Options{Addr: address, Password: "hunter2", MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
			defer func() { _ = rdb.Close() }()
			b, err := redislock.New(rdb)
			require.NoError(t, err)
			_, err = b.Acquire(t.Context(), request())
			require.ErrorContains(t, err, address)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
