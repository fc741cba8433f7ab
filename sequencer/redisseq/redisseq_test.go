package redisseq_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/sequencer"
	"github.com/go-fencing/fencing/sequencer/redisseq"
	"github.com/go-fencing/fencing/sequencer/sequencertest"
)

const resource = "inventory:sku-42"

func TestMain(m *testing.M) { servertest.Main(m) }

func client(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// open returns a sequencer with keys of its own on the shared server, and the key
// of the counter of resource.
func open(t testing.TB, opts ...redisseq.Option) (*redisseq.Sequencer, *redis.Client, string) {
	t.Helper()
	rdb := client(t, servertest.Redis(t))
	scheme := rediskeys.Default()
	scheme.Prefix = "test-" + rand.Text()
	s, err := redisseq.New(rdb, append(opts, redisseq.WithPrefix(scheme.Prefix))...)
	require.NoError(t, err)
	return s, rdb, scheme.Counter(resource)
}

func next(t testing.TB, s *redisseq.Sequencer, after guard.Token) guard.Token {
	t.Helper()
	token, err := s.Next(t.Context(), resource, after)
	require.NoError(t, err)
	return token
}

func TestSequencer(t *testing.T) {
	t.Parallel()
	sequencertest.Run(t, func(t *testing.T) sequencer.Sequencer { s, _, _ := open(t); return s })
}

func TestSequencerOnACluster(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	node := client(t, server.URL())
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, 10*time.Second, 10*time.Millisecond)
	sequencertest.Run(t, func(t *testing.T) sequencer.Sequencer {
		s, err := redisseq.New(rdb, redisseq.WithPrefix(rand.Text()))
		require.NoError(t, err)
		return s
	})
}

func TestCounterIsTheOneOfTheLockAndHasNoTTL(t *testing.T) {
	t.Parallel()
	s, rdb, key := open(t)
	require.NoError(t, rdb.Set(t.Context(), key, "41", 0).Err())
	require.EqualValues(t, 42, next(t, s, 0))
	require.Equal(t, "42", rdb.Get(t.Context(), key).Val())
	require.EqualValues(t, 101, next(t, s, 100))
	require.Equal(t, "101", rdb.Get(t.Context(), key).Val())
	require.EqualValues(t, -1, rdb.TTL(t.Context(), key).Val(), "the counter must not expire")
}

func TestShardsBoundTheNumberOfCounters(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.Redis(t))
	prefix := rand.Text()
	s, err := redisseq.New(rdb, redisseq.WithPrefix(prefix), redisseq.WithShards(4))
	require.NoError(t, err)
	for i := range 100 {
		_, err := s.Next(t.Context(), fmt.Sprint("order:", i), 0)
		require.NoError(t, err)
	}
	keys, err := rdb.Keys(t.Context(), prefix+"*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 4)
}

// The conformance suite's S16 goes by after; here Redis itself is up there.
func TestS16_NoDuplicatesAbove2To53(t *testing.T) {
	t.Parallel()
	s, rdb, key := open(t)
	last := guard.Token(1)<<53 - 4
	require.NoError(t, rdb.Set(t.Context(), key, last.String(), 0).Err())
	for range 12 {
		token := next(t, s, 0)
		require.Equal(t, last+1, token)
		last = token
	}
}

func TestS13_AFlushedCounterIsRepairedByAfter(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	s, err := redisseq.New(rdb)
	require.NoError(t, err)
	store := next(t, s, 1000) // what the store's fence remembers
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	require.Less(t, next(t, s, 0), store, "Redis has forgotten")
	repaired := next(t, s, store)
	require.Equal(t, store+1, repaired)
	require.Equal(t, repaired+1, next(t, s, 0), "the counter goes on from there")
}

func TestS13_AServerThatKeptNothingIsRepairedByAfter(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	s, err := redisseq.New(client(t, server.URL()))
	require.NoError(t, err)
	store := next(t, s, 1000)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	require.Less(t, next(t, s, 0), store, "Redis has forgotten")
	require.Equal(t, store+1, next(t, s, store))
}

func TestS14_AnEvictedCounterIsRepairedByAfter(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{
		"--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru", "--maxmemory-samples", "64",
	}})
	rdb := client(t, server.URL())
	s, err := redisseq.New(rdb)
	require.NoError(t, err)
	store := next(t, s, 1000)
	key := rediskeys.Default().Counter(resource)
	require.NotZero(t, rdb.Exists(t.Context(), key).Val())
	require.Eventually(t, func() bool {
		fill(t, rdb, 0)
		return rdb.Exists(t.Context(), key).Val() == 0
	}, 20*time.Second, time.Millisecond, "the counter was never evicted")
	require.Less(t, next(t, s, 0), store, "Redis has forgotten")
	require.Equal(t, store+1, next(t, s, store))
}

func TestS14_AVolatilePolicyLeavesTheCounterAlone(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{
		"--maxmemory", "8mb", "--maxmemory-policy", "volatile-lru",
	}})
	rdb := client(t, server.URL())
	s, err := redisseq.New(rdb)
	require.NoError(t, err)
	before := next(t, s, 1000)
	require.Eventually(t, func() bool {
		fill(t, rdb, time.Hour)
		return evicted(t, rdb) > 20
	}, 20*time.Second, time.Millisecond, "nothing was evicted")
	require.Equal(t, before+1, next(t, s, 0))
}

// fill writes a value of 100 kB.
func fill(t testing.TB, rdb *redis.Client, ttl time.Duration) {
	t.Helper()
	require.NoError(t, rdb.Set(t.Context(), rand.Text(), strings.Repeat("x", 100_000), ttl).Err())
}

func evicted(t testing.TB, rdb *redis.Client) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "stats").Result()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(info, "evicted_keys:")
	_, err = fmt.Sscan(rest, &n)
	require.NoError(t, err)
	return n
}

func TestS17_AFailedScriptLeavesTheKeyAsItWas(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"precious", "", " 5", "5 ", "0x10", "1e3", "12.5", "-5", "007", "nan", "inf", "99999999999999999999"} {
		for _, after := range []guard.Token{0, 1, 1000, 1 << 50, math.MaxInt64} {
			s, rdb, key := open(t, redisseq.WithMaxJump(math.MaxInt64))
			require.NoError(t, rdb.Set(t.Context(), key, value, 0).Err())
			_, err := s.Next(t.Context(), resource, after)
			require.ErrorContains(t, err, key, "%q", value)
			require.ErrorContains(t, err, "no counter; nothing was changed", "%q, after %d", value, after)
			require.NotErrorIs(t, err, sequencer.ErrExhausted)
			require.Equal(t, value, rdb.Get(t.Context(), key).Val(), "after %d", after)
		}
	}

	s, rdb, key := open(t)
	require.NoError(t, rdb.HSet(t.Context(), key, "user", "data").Err())
	_, err := s.Next(t.Context(), resource, 1000)
	require.ErrorContains(t, err, key)
	require.ErrorContains(t, err, "no counter; nothing was changed")
	require.Equal(t, map[string]string{"user": "data"}, rdb.HGetAll(t.Context(), key).Val())
}

// Resources share the counter: an impossible demand for one must not end the others.
func TestS18_ARefusedDemandLeavesTheCounterAsItWas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		maxJump, after guard.Token
		is             error
		says           string
	}{
		{sequencer.DefaultMaxJump, math.MaxInt64 - 1, sequencer.ErrJump, "the counter at 7"},
		{10, 18, sequencer.ErrJump, "more than 10 ahead of the counter at 7"},
		{math.MaxInt64, math.MaxInt64, sequencer.ErrExhausted, `an operator must run "fencectl rebase"`},
	} {
		s, rdb, key := open(t, redisseq.WithMaxJump(c.maxJump))
		require.NoError(t, rdb.Set(t.Context(), key, "7", 0).Err())
		_, err := s.Next(t.Context(), resource, c.after)
		require.ErrorIs(t, err, c.is)
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, key)
		require.Equal(t, "7", rdb.Get(t.Context(), key).Val())
	}
}

func TestS18_OverflowIsExhausted(t *testing.T) {
	t.Parallel()
	s, rdb, key := open(t)
	require.NoError(t, rdb.Set(t.Context(), key, "9223372036854775806", 0).Err())
	require.EqualValues(t, math.MaxInt64, next(t, s, 0))
	_, err := s.Next(t.Context(), resource, 0)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
	require.Equal(t, "9223372036854775807", rdb.Get(t.Context(), key).Val())
}

func TestAReadOnlyReplicaIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	primary := servertest.NewRedis(t, localserver.RedisOptions{})
	replica := servertest.NewRedis(t, localserver.RedisOptions{})
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	rdb := client(t, replica.URL())
	require.NoError(t, rdb.ReplicaOf(t.Context(), host, port).Err())
	s, err := redisseq.New(rdb)
	require.NoError(t, err)
	_, err = s.Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, "read-only replica; connect to the primary")
}

func TestAFlushedScriptIsNoFailure(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	s, err := redisseq.New(rdb)
	require.NoError(t, err)
	first := next(t, s, 0)
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
	require.Equal(t, first+1, next(t, s, 0))
}

func TestAWrongPasswordStaysSecret(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--requirepass", "right"}})
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "wr0ng-secret"})
	t.Cleanup(func() { _ = rdb.Close() })
	s, err := redisseq.New(rdb)
	require.NoError(t, err)
	_, err = s.Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "wr0ng-secret")
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	for says, f := range map[string]func() (*redisseq.Sequencer, error){
		"client is nil":           func() (*redisseq.Sequencer, error) { return redisseq.New(nil) },
		"redisseq: the Redis":     func() (*redisseq.Sequencer, error) { return redisseq.New((*redis.ClusterClient)(nil)) },
		"prefix is empty":         func() (*redisseq.Sequencer, error) { return redisseq.New(rdb, redisseq.WithPrefix("")) },
		`"a{b" has a brace`:       func() (*redisseq.Sequencer, error) { return redisseq.New(rdb, redisseq.WithPrefix("a{b")) },
		"0 shards are not":        func() (*redisseq.Sequencer, error) { return redisseq.New(rdb, redisseq.WithShards(0)) },
		"option is nil":           func() (*redisseq.Sequencer, error) { return redisseq.New(rdb, nil) },
		"jump -1 is not positive": func() (*redisseq.Sequencer, error) { return redisseq.New(rdb, redisseq.WithMaxJump(-1)) },
	} {
		_, err := f()
		require.ErrorContains(t, err, says)
	}
}

func ExampleNew() {
	server, err := miniredis.Run() // in place of a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	tokens, err := redisseq.New(rdb, redisseq.WithPrefix("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	fmt.Println(tokens.Next(ctx, "inventory:sku-42", 0))
	server.FlushAll()                                     // Redis forgets,
	fmt.Println(tokens.Next(ctx, "inventory:sku-42", 33)) // the store has not
	// Output:
	// 1 <nil>
	// 34 <nil>
}

func BenchmarkNext(b *testing.B) {
	s, rdb, key := open(b)
	b.Run("one caller", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Next(b.Context(), resource, 0)
			require.NoError(b, err)
		}
	})
	b.Run("eight callers", func(b *testing.B) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := s.Next(b.Context(), resource, 0); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("bare INCR", func(b *testing.B) { // what a script costs over it
		for b.Loop() {
			require.NoError(b, rdb.Incr(b.Context(), key).Err())
		}
	})
}
