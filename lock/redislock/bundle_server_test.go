package redislock_test

import (
	"cmp"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// A server that refuses the calls of a batch as one gets them each by itself.
func TestAServerThatTakesNoSeveralAtOnce(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) *redis.Client{
		"a node of a Cluster": func(t *testing.T) *redis.Client {
			return redis.NewClient(&redis.Options{Addr: servertest.NewRedisCluster(t, 1, 0).Addrs()[0]})
		},
		"a user without the rights": func(t *testing.T) *redis.Client {
			server := servertest.NewRedis(t, localserver.RedisOptions{})
			require.NoError(t, client(t, server.URL()).Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all", "-mget").Err())
			return redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "worker", Password: "secret"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := open(t)
			t.Cleanup(func() { _ = rdb.Close() })
			b, err := redislock.New(rdb)
			require.NoError(t, err)
			g := newGate(t, rdb, b)
			errs := make([]error, many)
			requests := make([]lock.Request, many)
			for range 3 {
				g.together(many, func(i int) {
					requests[i] = request()
					requests[i].Resource = order(i)
					_, errs[i] = b.Acquire(t.Context(), requests[i])
				})
				require.NoError(t, errors.Join(errs...))
				g.together(many, func(i int) { errs[i] = b.Release(t.Context(), requests[i]) })
				require.NoError(t, errors.Join(errs...))
			}
			require.Zero(t, g.several["grants.lua"].Load())
			require.Positive(t, g.refused.Load())
			require.LessOrEqual(t, g.refused.Load(), int64(4), "they are tried again and again")
		})
	}
}

// A proxy sends each script to the server of its first key, and says nothing.
func TestBehindAProxyForSeveralServersEachCallIsACommand(t *testing.T) {
	t.Parallel()
	p := &proxy{behind: []*redis.Client{
		client(t, servertest.NewRedis(t, localserver.RedisOptions{}).URL()),
		client(t, servertest.NewRedis(t, localserver.RedisOptions{}).URL()),
	}}
	rdb := client(t, "redis://127.0.0.1:1")
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	g := newGate(t, rdb, b)
	rdb.AddHook(p)
	for range 3 {
		requests, errs := make([]lock.Request, many), make([]error, many)
		g.together(many, func(i int) {
			requests[i] = request()
			requests[i].Resource = order(i)
			_, errs[i] = b.Acquire(t.Context(), requests[i])
		})
		require.NoError(t, errors.Join(errs...))
		for i := range many { // where a call that goes alone finds them
			other := request()
			other.Resource = order(i)
			_, err := b.Acquire(t.Context(), other)
			require.ErrorIs(t, err, lock.ErrHeld)
		}
		g.together(many, func(i int) { errs[i] = b.Release(t.Context(), requests[i]) })
		require.NoError(t, errors.Join(errs...))
	}
	require.Zero(t, g.several["grants.lua"].Load()+g.several["releases.lua"].Load()+g.refused.Load())
}

type proxy struct{ behind []*redis.Client }

func (*proxy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *proxy) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		key := cmd.Args()[3] // of a script
		if k, ok := key.(*string); ok {
			key = *k
		}
		sum := sha1.Sum([]byte(rediskeys.HashTag(key.(string))))
		return p.behind[int(sum[0])%len(p.behind)].Process(ctx, cmd)
	}
}

func (p *proxy) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var first error
		for _, cmd := range cmds {
			first = cmp.Or(first, p.ProcessHook(nil)(ctx, cmd))
		}
		return first
	}
}

func TestWithSeveralServersEachCallIsACommand(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) redis.UniversalClient{
		"Cluster": func(t *testing.T) redis.UniversalClient { return clusterClient(t, servertest.NewRedisCluster(t, 3, 0)) },
		"Ring": func(t *testing.T) redis.UniversalClient {
			addrs := make(map[string]string)
			for _, name := range []string{"a", "b"} {
				addrs[name] = servertest.NewRedis(t, localserver.RedisOptions{}).Addr()
			}
			ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
			t.Cleanup(func() { _ = ring.Close() })
			return ring
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := open(t)
			b, err := redislock.New(rdb)
			require.NoError(t, err)
			g := newGate(t, rdb, b)
			requests, errs := make([]lock.Request, 4*many), make([]error, 4*many)
			g.together(len(requests), func(i int) {
				requests[i] = request()
				requests[i].Resource = order(i)
				_, errs[i] = b.Acquire(t.Context(), requests[i])
			})
			require.NoError(t, errors.Join(errs...))
			g.together(len(requests), func(i int) { errs[i] = b.Release(t.Context(), requests[i]) })
			require.NoError(t, errors.Join(errs...))
			require.Zero(t, g.several["grants.lua"].Load()+g.several["releases.lua"].Load()+g.refused.Load())
		})
	}
}

// A full server grants nothing, but lets go of what it has.
func TestAFullServerReleasesABatch(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	g := newGate(t, rdb, b)
	requests, errs := make([]lock.Request, many), make([]error, many)
	acquire := func(i int) {
		requests[i] = request()
		requests[i].Resource = order(i)
		_, errs[i] = b.Acquire(t.Context(), requests[i])
	}
	release := func(i int) { errs[i] = b.Release(t.Context(), requests[i]) }
	for range 2 { // the server knows the scripts
		g.together(many, acquire)
		require.NoError(t, errors.Join(errs...))
		g.together(many, release)
		require.NoError(t, errors.Join(errs...))
	}
	g.together(many, acquire)
	require.NoError(t, errors.Join(errs...))
	direct := client(t, server.URL())
	require.NoError(t, direct.ConfigSet(t.Context(), "maxmemory", "1").Err())
	g.together(many, release)
	require.NoError(t, errors.Join(errs...))
	require.Positive(t, g.refused.Load())
	g.together(many, acquire)
	for _, err := range errs {
		require.ErrorContains(t, err, "OOM")
	}
	require.NoError(t, direct.ConfigSet(t.Context(), "maxmemory", "0").Err())
	g.together(many, acquire)
	require.NoError(t, errors.Join(errs...))
}

// The server is full, the callers go while the reply is under way, and their releases
// leave no mark on a full server. Then there is room.
func TestWhoHasLeftABatchGetsNoLock(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb, direct := client(t, server.URL()), client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	g := newGate(t, rdb, b)
	full := func(bytes string) { require.NoError(t, direct.ConfigSet(t.Context(), "maxmemory", bytes).Err()) }
	requests := make([]lock.Request, many)
	for i := range requests { // the server knows the scripts
		requests[i] = request()
		requests[i].Resource = order(i)
	}
	g.together(many, func(i int) { _, _ = b.Acquire(t.Context(), requests[i]) })
	g.together(many, func(i int) { _ = b.Release(t.Context(), requests[i]) })
	require.NoError(t, direct.FlushDB(t.Context()).Err())

	late := &lateReply{came: make(chan struct{}), goOn: make(chan struct{})}
	rdb.AddHook(late)
	full("1")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-late.came
		cancel()
	}()
	g.together(many, func(i int) {
		requests[i].Nonce = request().Nonce
		if _, err := b.Acquire(ctx, requests[i]); err != nil {
			<-ctx.Done()
			_ = b.Release(t.Context(), requests[i]) // as a locker does
		}
	})
	full("0")
	close(late.goOn)
	require.Eventually(t, func() bool { return b.CallsUnderWay() == 0 }, soon, time.Millisecond)
	for _, r := range requests {
		requireFree(t, b, r.Resource, "a lock that nobody has, for its TTL")
	}
}

// lateReply holds up the first reply to a bundle.
type lateReply struct {
	once       atomic.Bool
	came, goOn chan struct{}
}

func (*lateReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*lateReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *lateReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if len(cmds[0].Args()) > 12 && l.once.CompareAndSwap(false, true) {
			close(l.came)
			<-l.goOn
		}
		return err
	}
}

// The server takes no new connection: that is no loss of what it has.
func TestARefusedConnectionIsNoLoss(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	direct := client(t, server.URL())
	user := func(password string) {
		require.NoError(t, direct.Do(t.Context(), "ACL", "SETUSER", "worker", "reset", "on", ">"+password, "~*", "&*", "+@all").Err())
	}
	user("old")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "worker", Password: "old"})
	t.Cleanup(func() { _ = rdb.Close() })
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	g := newGate(t, rdb, b)
	requests, errs := make([]lock.Request, many), make([]error, many)
	g.together(many, func(i int) {
		requests[i] = request()
		requests[i].Resource = order(i)
		_, errs[i] = b.Acquire(t.Context(), requests[i])
	})
	require.NoError(t, errors.Join(errs...))
	user("new")
	require.NoError(t, direct.Do(t.Context(), "CLIENT", "KILL", "USER", "worker").Err())
	for name, call := range map[string]func(r lock.Request) error{
		"acquire": func(r lock.Request) error { _, err := b.Acquire(t.Context(), r); return err },
		"renew":   func(r lock.Request) error { return b.Renew(t.Context(), r) },
		"join":    func(r lock.Request) error { return b.Join(t.Context(), r, "member") },
		"leave":   func(r lock.Request) error { return b.Leave(t.Context(), r, "member") },
		"release": func(r lock.Request) error { return b.Release(t.Context(), r) },
	} {
		g.together(many, func(i int) { errs[i] = call(requests[i]) })
		for _, err := range errs {
			require.ErrorContains(t, err, "WRONGPASS", name)
			require.NotErrorIs(t, err, lock.ErrLost, name)
		}
	}
	_, err = b.Inspect(t.Context(), requests[0].Resource)
	require.ErrorContains(t, err, "WRONGPASS")
	for _, err := range b.RenewAll(t.Context(), requests) {
		require.ErrorContains(t, err, "WRONGPASS")
		require.NotErrorIs(t, err, lock.ErrLost)
	}
}

// The reply to several calls is lost, and go-redis sends them again: each has the token
// that the first run gave it, and a release that leaves word that a copy may come.
func TestTheReplyToABatchIsLost(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	deaf := onceDeaf{kinds: "*"}
	rdb := deaf.client(t, server)
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	g := newGate(t, rdb, b)
	direct, scheme := client(t, server.URL()), rediskeys.Default()
	requests, tokens, errs := make([]lock.Request, many), make([]guard.Token, many), make([]error, many)
	for i := range requests {
		requests[i] = request()
		requests[i].Resource = order(i)
	}
	acquire := func(i int) { tokens[i], errs[i] = b.Acquire(t.Context(), requests[i]) }
	g.together(many, acquire) // the server knows the scripts
	require.NoError(t, errors.Join(errs...))
	g.together(many, func(i int) { errs[i] = b.Release(t.Context(), requests[i]) })
	require.NoError(t, errors.Join(errs...))

	for i := range requests {
		requests[i].Nonce = request().Nonce
	}
	deaf.deaf.Store(true)
	g.together(many, acquire)
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 1, deaf.lost.Load(), "no reply was lost")
	for i, r := range requests {
		value := direct.Get(t.Context(), scheme.Lock(r.Resource)).Val()
		require.True(t, strings.HasPrefix(value, fmt.Sprintf("fencing held %s\n%d\n", r.Nonce, tokens[i])), "token %d, %s", tokens[i], value)
	}
	deaf.deaf.Store(true)
	g.together(many, func(i int) { errs[i] = b.Release(t.Context(), requests[i]) })
	require.NoError(t, errors.Join(errs...))
	marks := 0
	for i, r := range requests {
		requireFree(t, b, r.Resource, "")
		marks += int(direct.Exists(t.Context(), scheme.Keys(r.Resource, requests[i].Nonce).Released).Val())
	}
	require.Greater(t, marks, 1, "nothing says that a copy of an acquisition may come")
	require.Less(t, marks, many, "also of those that were sent once")
}
