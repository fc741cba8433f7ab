package redislock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
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
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/sequencer"
)

func client(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// open returns a back end with keys of its own on the shared server.
func open(t testing.TB) (*redislock.Backend, *redis.Client, rediskeys.Scheme) {
	t.Helper()
	rdb := client(t, servertest.Redis(t))
	scheme := rediskeys.Scheme{Prefix: "test-" + rand.Text(), Shards: 256}
	b, err := redislock.New(rdb, redislock.WithPrefix(scheme.Prefix))
	require.NoError(t, err)
	return b, rdb, scheme
}

func request() lock.Request {
	return lock.Request{Resource: "inventory:sku-42", Nonce: rand.Text(), Holder: "web-1", TTL: time.Minute}
}

func TestBackend(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(t *testing.T) lock.Backend { b, _, _ := open(t); return b })
}

// S16: Lua's numbers are doubles; INCR through one repeats above 2^53.
func TestS16_NoDuplicatesAbove2To53(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	require.NoError(t, rdb.Set(t.Context(), scheme.Counter("inventory:sku-42"), int64(1)<<53-2, 0).Err())
	last := guard.Token(1)<<53 - 2
	for range 8 {
		r := request()
		token, err := b.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, last+1, token)
		last = token
		require.NoError(t, b.Release(t.Context(), r))
	}
}

// S17: a script that fails half-way leaves no lock behind.
func TestS17_AFailedAcquireLeavesNoLock(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	r := request()
	for _, c := range []struct {
		counter string
		is      error
		says    string
	}{
		{"9223372036854775807", sequencer.ErrExhausted, scheme.Counter(r.Resource)},
		{"no number", nil, "not an integer"},
		{"1e3", nil, "not an integer"},
	} {
		require.NoError(t, rdb.Set(t.Context(), scheme.Counter(r.Resource), c.counter, 0).Err())
		_, err := b.Acquire(t.Context(), r)
		require.ErrorContains(t, err, c.says)
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		} else {
			require.NotErrorIs(t, err, sequencer.ErrExhausted)
		}
		require.Zero(t, rdb.Exists(t.Context(), scheme.Lock(r.Resource)).Val())
	}
	// A counter is shared by the resources of its shard: one of them must not end
	// it for all, nor overwrite what is no counter.
	all, err := redislock.New(rdb, redislock.WithPrefix(scheme.Prefix), redislock.WithMaxJump(1<<63-1))
	require.NoError(t, err)
	for counter, is := range map[string]error{"5": sequencer.ErrExhausted, "0x10": nil, " 5": nil, "12.5": nil} {
		require.NoError(t, rdb.Set(t.Context(), scheme.Counter(r.Resource), counter, 0).Err())
		r.After = 1<<63 - 1
		_, err := all.Acquire(t.Context(), r)
		require.Error(t, err)
		require.True(t, is == nil || errors.Is(err, is), "%v", err)
		require.Equal(t, counter, rdb.Get(t.Context(), scheme.Counter(r.Resource)).Val())
		require.Zero(t, rdb.Exists(t.Context(), scheme.Lock(r.Resource)).Val())
	}
	r.After = 0

	require.NoError(t, rdb.Del(t.Context(), scheme.Counter(r.Resource)).Err())
	require.NoError(t, rdb.HSet(t.Context(), scheme.Counter(r.Resource), "a", "b").Err())
	_, err = b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "choose another prefix")
	require.Zero(t, rdb.Exists(t.Context(), scheme.Lock(r.Resource)).Val())
}

// S18: a poisoned fence must not drag the counter to the end of the integers.
func TestS18_AnImplausibleJumpIsRefused(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	r := request()
	r.After = 1<<63 - 10
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, "9223372036854775798")
	require.Zero(t, rdb.Exists(t.Context(), scheme.Lock(r.Resource), scheme.Counter(r.Resource)).Val())

	bounded, err := redislock.New(rdb, redislock.WithPrefix(scheme.Prefix), redislock.WithMaxJump(100))
	require.NoError(t, err)
	r.After = 100
	token, err := bounded.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.EqualValues(t, 101, token)
	r.After = 202
	_, err = bounded.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
}

func TestTheCounterNeverExpiresAndTheLockAlwaysDoes(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	r := request()
	_, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, time.Duration(-1), rdb.TTL(t.Context(), scheme.Counter(r.Resource)).Val())
	require.Greater(t, rdb.PTTL(t.Context(), scheme.Lock(r.Resource)).Val(), 50*time.Second)
	require.NoError(t, b.Release(t.Context(), r))
	left := rdb.PTTL(t.Context(), scheme.Lock(r.Resource)).Val()
	require.Greater(t, left, 50*time.Second, "what is left of a lock says who had it")
	require.LessOrEqual(t, left, r.TTL, "and goes by itself")
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
	require.Len(t, rdb.Keys(t.Context(), scheme.Prefix+":*").Val(), 3, "counter, lock, and the mark of the nonce that had no lock")
	lost := request()
	require.ErrorIs(t, b.Release(t.Context(), lost), lock.ErrLost)
	left = rdb.PTTL(t.Context(), scheme.Keys(r.Resource, lost.Nonce).Released).Val()
	require.Greater(t, left, 5*time.Second)
	require.LessOrEqual(t, left, 10*time.Second)
}

// go-redis repeats a call whose reply it missed: the second one must not say that
// the lock was lost.
func TestARepeatedReleaseIsTheSameRelease(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	r := request()
	_, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, b.Release(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
	other := request()
	_, err = b.Acquire(t.Context(), other)
	require.NoError(t, err)
	require.NoError(t, b.Release(t.Context(), r), "another has it since")
	require.NoError(t, b.Renew(t.Context(), other), "and still does")
	require.NoError(t, b.Release(t.Context(), other))
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
}

// Later nobody knows any more what became of it, and it is no loss either.
func TestAReleaseRepeatedByTheClientIsNoLoss(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	direct, err := redislock.New(client(t, server.URL()))
	require.NoError(t, err)
	var deaf atomic.Bool
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: 3, ReadTimeout: 300 * time.Millisecond,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{conn, &deaf}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	b, err := redislock.New(rdb)
	require.NoError(t, err)

	r := request()
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, b.Release(t.Context(), r)) // now the server knows the scripts
	r = request()
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	deaf.Store(true)
	released := make(chan error, 1)
	go func() { released <- b.Release(t.Context(), r) }()
	for range 2 { // another one comes, and goes
		other := request()
		require.Eventually(t, func() bool { _, err := direct.Acquire(t.Context(), other); return err == nil }, soon, time.Millisecond)
		require.NoError(t, direct.Release(t.Context(), other))
	}
	deaf.Store(false)
	err = <-released
	require.ErrorIs(t, err, lock.ErrUnknown)
	require.NotErrorIs(t, err, lock.ErrLost)

	lost := request()
	require.ErrorIs(t, b.Release(t.Context(), lost), lock.ErrLost, "sent once")
}

// An undo may overtake the acquisition that it undoes.
func TestALateAcquireIsRefusedAfterItsRelease(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	r := request()
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	_, err := b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "released before it arrived")
	requireFree(t, b, r.Resource, "an orphan for a whole TTL")
}

func TestABadRequestTouchesNoKey(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	r := request()
	r.After = -5
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.Zero(t, rdb.Exists(t.Context(), scheme.Counter(r.Resource)).Val())
}

func TestSomebodysHashIsNoFreeLock(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	r := request()
	require.NoError(t, rdb.HSet(t.Context(), scheme.Lock(r.Resource), "theirs", "1").Err())
	_, err := b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "choose another prefix")
	require.Equal(t, map[string]string{"theirs": "1"}, rdb.HGetAll(t.Context(), scheme.Lock(r.Resource)).Val())
	require.Equal(t, time.Duration(-1), rdb.TTL(t.Context(), scheme.Lock(r.Resource)).Val())
}

func TestAUsersStringUnderTheLocksKey(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	r := request()
	require.NoError(t, rdb.Set(t.Context(), scheme.Lock(r.Resource), "precious", 0).Err())
	_, err := b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "choose another prefix")
	require.NotErrorIs(t, err, lock.ErrHeld)
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	require.Equal(t, "precious", rdb.Get(t.Context(), scheme.Lock(r.Resource)).Val())
}

func TestScriptFlushIsNoFailure(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	requests := make([]lock.Request, 10)
	for i := range requests {
		requests[i] = request()
		requests[i].Resource += rand.Text()
		_, err := b.Acquire(t.Context(), requests[i])
		require.NoError(t, err)
	}
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
	for _, err := range b.RenewAll(t.Context(), requests) {
		require.NoError(t, err)
	}
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
	require.NoError(t, b.Release(t.Context(), requests[0]))
}

// WithKeys: the locks of a library that sets a string with NX, both ways.
func TestWithKeysExcludesAnotherLibrarysLock(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.Redis(t))
	prefix := rand.Text()
	b, err := redislock.New(rdb, redislock.WithKeys(func(r string) (string, string) { return prefix + r, prefix + "fence" }))
	require.NoError(t, err)
	r := request()
	key := prefix + r.Resource

	require.NoError(t, rdb.SetNX(t.Context(), key, "their token", time.Minute).Err())
	_, err = b.Acquire(t.Context(), r)
	var held *lock.HeldError
	require.ErrorAs(t, err, &held)
	require.Greater(t, held.Remaining, 50*time.Second)
	h, err := b.Inspect(t.Context(), r.Resource)
	require.NoError(t, err)
	require.Equal(t, 1, h.Members)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	require.Equal(t, "their token", rdb.Get(t.Context(), key).Val())
	r = request()

	require.NoError(t, rdb.Del(t.Context(), key).Err())
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	set, err := rdb.SetNX(t.Context(), key, "their token", time.Minute).Result()
	require.NoError(t, err)
	require.False(t, set, "their SET NX must fail while we hold the lock")
	require.NoError(t, b.Release(t.Context(), r))
	require.True(t, rdb.SetNX(t.Context(), key, "their token", time.Minute).Val())
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	for says, f := range map[string]func() (*redislock.Backend, error){
		"client is nil":           func() (*redislock.Backend, error) { return redislock.New(nil) },
		"redislock: the Redis":    func() (*redislock.Backend, error) { return redislock.New((*redis.Client)(nil)) },
		"prefix is empty":         func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithPrefix("")) },
		`"a{b" has a brace`:       func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithPrefix("a{b")) },
		"0 shards are not":        func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithShards(0)) },
		"option is nil":           func() (*redislock.Backend, error) { return redislock.New(rdb, nil) },
		"jump -1 is not positive": func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithMaxJump(-1)) },
		"function is nil":         func() (*redislock.Backend, error) { return redislock.New(rdb, redislock.WithKeys(nil)) },
		"must be two keys": func() (*redislock.Backend, error) {
			return redislock.New(rdb, redislock.WithKeys(func(r string) (string, string) { return r, r }))
		},
		`"l:example" and "counter"`: func() (*redislock.Backend, error) {
			return redislock.New(cluster, redislock.WithKeys(func(r string) (string, string) { return "l:" + r, "counter" }))
		},
	} {
		_, err := f()
		require.ErrorContains(t, err, says)
	}
}

func TestAReadOnlyReplicaIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	master := servertest.NewRedis(t, localserver.RedisOptions{})
	replica := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, replica.URL())
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	_, err = b.Acquire(t.Context(), request()) // held, for what the replica knows
	require.NoError(t, err)
	require.NoError(t, rdb.ReplicaOf(t.Context(), host, port).Err())
	for _, r := range []lock.Request{request(), {Resource: "free", Nonce: "n", TTL: time.Minute}} {
		_, err = b.Acquire(t.Context(), r)
		require.ErrorContains(t, err, "read-only replica")
	}
}

func TestAWrongPasswordStaysSecret(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	require.NoError(t, client(t, server.URL()).ConfigSet(t.Context(), "requirepass", "right").Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "wr0ng-secret"})
	t.Cleanup(func() { _ = rdb.Close() })
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	_, err = b.Acquire(t.Context(), request())
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "wr0ng-secret")
}
