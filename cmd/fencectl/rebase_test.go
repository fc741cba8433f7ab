package main_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/pgguard"
	"github.com/go-fencing/fencing/sequencer"
)

const sku = "inventory:sku-42"

// A shop has a locker over Redis and Postgres, and what the program needs to find both.
type shop struct {
	database
	pool  *pgxpool.Pool
	rdb   *redis.Client
	store *pgguard.Guard
	args  []string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{database: migrated(t)}
	var err error
	s.pool, err = pgxpool.New(t.Context(), s.url)
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	url := servertest.NewRedis(t, localserver.RedisOptions{}).URL()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	s.rdb = redis.NewClient(o)
	t.Cleanup(func() { _ = s.rdb.Close() })
	s.store, err = pgguard.New(s.pool)
	require.NoError(t, err)
	s.args = []string{"--postgres", s.url, "--redis", url}
	return s
}

func (s *shop) locker(t *testing.T, opts ...redislock.Option) *lock.Locker {
	t.Helper()
	b, err := redislock.New(s.rdb, opts...)
	require.NoError(t, err)
	l, err := lock.New(b, lock.WithGuards(s.store), lock.WithTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// sells works once under the lock and its fence, and returns that.
func (s *shop) sells(t *testing.T, l *lock.Locker, resource string) (f guard.Fence) {
	t.Helper()
	require.NoError(t, l.Do(t.Context(), resource, func(ctx context.Context) error {
		f, _ = guard.FromContext(ctx, resource)
		return s.store.InTx(ctx, func(pgx.Tx) error { return nil })
	}))
	return f
}

// acquire takes the lock straight in Redis.
func (s *shop) acquire(t *testing.T) (*redislock.Backend, lock.Request) {
	t.Helper()
	b, err := redislock.New(s.rdb)
	require.NoError(t, err)
	r := lock.Request{Resource: sku, Nonce: "n", Holder: "web-1", TTL: time.Minute}
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	return b, r
}

func (s *shop) counter(t *testing.T, value string) {
	t.Helper()
	require.NoError(t, s.rdb.Set(t.Context(), rediskeys.Default().Counter(sku), value, 0).Err())
}

// state is all that a rebase may change.
func (s *shop) state(t *testing.T) string {
	t.Helper()
	value, _ := s.rdb.Get(t.Context(), rediskeys.Default().Counter(sku)).Result()
	return value + s.query(t, "select coalesce(string_agg(f::text, ',' order by resource), '') || coalesce((select string_agg(s::text, ',') from fencing.sequence s), '') || (select string_agg(c::text, ',' order by shard) from fencing.lease_counter c) from fencing.fence f")
}

func (s *shop) rebase(args ...string) []string {
	return append(append([]string{"rebase"}, args...), s.args...)
}

func TestS18_APoisonedCounterIsRebasedAndItsHoldersStayRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	l := s.locker(t)
	early := s.sells(t, l, sku)
	s.counter(t, "9223372036854775805")
	first, last := s.sells(t, l, sku), s.sells(t, l, sku)
	require.EqualValues(t, 1<<63-1, last.Token)

	_, err := l.Acquire(t.Context(), sku)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
	require.ErrorContains(t, err, `"fencectl rebase"`)
	s.counter(t, "1")
	_, err = l.Acquire(t.Context(), sku)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `"fencectl rebase"`)
	s.counter(t, "9223372036854775807")

	before := s.state(t)
	const plan = `  fence: 9223372036854775807 → 4503599627370496
  counter fencing:fence:{137} in Redis: 9223372036854775807 → 4503599627370496
`
	require.Equal(t, "inventory:sku-42 would be rebased; its fence is at 4503599627370496, and tokens from 76561193665298432 on are given up\n"+plan+
		"nothing was changed; do it with --yes\n", ok(t, s.rebase(sku)...))
	require.Equal(t, before, s.state(t))
	require.Equal(t, "inventory:sku-42 is rebased; its fence is at 4503599627370496, and tokens from 76561193665298432 on are given up\n"+plan, ok(t, s.rebase(sku, "--yes")...))

	next := s.sells(t, l, sku)
	require.EqualValues(t, 1<<52+1, next.Token)
	for _, f := range []guard.Fence{early, first, last, {Resource: sku, Token: 1<<63 - 3, Nonce: "drawn and not raised"}} {
		require.ErrorIs(t, s.store.Raise(t.Context(), f), guard.ErrStale, f)
		require.Error(t, s.store.InTx(guard.NewContext(t.Context(), f), func(pgx.Tx) error { return nil }), f)
	}
	require.EqualValues(t, 1<<52+2, s.sells(t, l, sku).Token, "nobody came back")
	require.Equal(t, "inventory:sku-42 needs nothing; its fence is at 4503599627370498, and tokens from 76561193665298432 on are given up\n", ok(t, s.rebase(sku, "--yes")...))

	// The next mistake is the counter's alone.
	s.counter(t, "76561193665298431") // the next one was given up
	_, err = l.Acquire(t.Context(), sku)
	require.ErrorIs(t, err, guard.ErrStale)
	require.ErrorContains(t, err, `"fencectl rebase"`)
	ok(t, s.rebase(sku, "--yes")...)
	require.EqualValues(t, 1<<52+3, s.sells(t, l, sku).Token)
}

func TestRebaseInJSON(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, "select fencing.raise('"+sku+"', 9223372036854775807, 'secret-nonce')")
	var got, done struct {
		Done    bool
		Changes []struct{ What, Before, After string }
		Fence   string
		From    string `json:"given_up_from"`
		Redis   bool
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, s.rebase(sku, "--json")...)), &got))
	require.NoError(t, json.Unmarshal([]byte(ok(t, s.rebase(sku, "--json", "--yes")...)), &done))
	require.False(t, got.Done)
	require.True(t, done.Done)
	got.Done = true
	require.Equal(t, done, got, "what was shown is what was done")
	require.Len(t, got.Changes, 2)
	require.Equal(t, "none", got.Changes[1].Before)
	require.Equal(t, []string{"4503599627370496", "76561193665298432"}, []string{got.Fence, got.From})
	require.True(t, got.Redis)
	require.JSONEq(t, `{"resource":"nobody's","done":false,"changes":[],"fence":"0","given_up_from":"0","redis":false}`, ok(t, "rebase", "nobody's", "--json", "--postgres", s.url))
	require.Contains(t, ok(t, "rebase", sku, "--postgres", s.url), "Redis is not named")
}

func TestRebaseRefusesWhileTheResourceIsInUse(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, "select fencing.raise('"+sku+"', 9223372036854775807, 'last')")
	s.counter(t, "hello")
	before := s.state(t)

	s.counter(t, "41")
	locks, r := s.acquire(t)
	s.counter(t, "hello")
	for _, args := range [][]string{{sku}, {sku, "--yes"}, {sku, "--yes", "--json"}} {
		require.Empty(t, fails(t, 1, "is held in Redis by web-1 with token 42", s.rebase(args...)...).stdout)
	}
	require.NoError(t, locks.Release(t.Context(), r))

	s.exec(t, "select fencing.lease_acquire('"+sku+"', 'n', 'web-2', 60000)")
	require.Empty(t, fails(t, 1, "is held by 'web-2' with token 1", s.rebase(sku, "--yes")...).stdout)
	s.exec(t, "select fencing.lease_release('"+sku+"', 'n', 'n'); update fencing.lease_counter set token = 0")

	s.exec(t, "begin; set local application_name = 'batch'; select fencing.enter('"+sku+"', 9223372036854775807, 'last')")
	require.Empty(t, fails(t, 1, "a transaction under the fence is open, of backend "+s.query(t, "select pg_backend_pid()::text")+" (batch, idle in transaction)", s.rebase(sku, "--yes")...).stdout)
	s.exec(t, "rollback")
	require.Equal(t, before, s.state(t))
	require.Contains(t, ok(t, s.rebase(sku, "--yes")...), `{137} in Redis: "hello" → 4503599627370496`)
	s.sells(t, s.locker(t), sku)
}

// What happens between the look at Redis and the change there.
func TestRebaseSetsACounterOnlyAsItWasSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, s *shop)
		code      int
		says      string
		counter   string
	}{
		"another token":  {func(t *testing.T, s *shop) { s.counter(t, "9223372036854775801") }, 0, "in Redis: 9223372036854775801 → 4503599627370496", "4503599627370496"},
		"it is repaired": {func(t *testing.T, s *shop) { s.counter(t, "4503599627370500") }, 0, "fence is at 4503599627370496", "4503599627370500"},
		"the lock": {func(t *testing.T, s *shop) {
			s.acquire(t)
			s.counter(t, "9223372036854775800")
		}, 1, "was locked in Redis meanwhile; the database is rebased, run it again", "9223372036854775800"},
		"what is no lock": {func(t *testing.T, s *shop) {
			require.NoError(t, s.rdb.HSet(t.Context(), rediskeys.Default().Lock(sku), "of", "someone else").Err())
		}, 1, "was locked in Redis meanwhile", "9223372036854775800"},
		"a lock that is released": {func(t *testing.T, s *shop) {
			locks, r := s.acquire(t)
			require.NoError(t, locks.Release(t.Context(), r))
			s.counter(t, "9223372036854775800")
		}, 0, "in Redis: 9223372036854775800 → 4503599627370496", "4503599627370496"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.counter(t, "9223372036854775800")
			s.exec(t, "select fencing.raise('"+sku+"', 9223372036854775807, 'last')")
			s.exec(t, "begin; select fencing.enter('"+sku+"', 9223372036854775807, 'last')")
			ended := make(chan result, 1)
			go func() { ended <- run(t, s.rebase(sku, "--yes")...) }()
			require.Eventually(t, func() bool {
				return s.query(t, "select count(*)::text from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())") == "1"
			}, time.Minute, 5*time.Millisecond)
			c.meanwhile(t, s)
			s.exec(t, "rollback")
			r := <-ended
			require.Equal(t, c.code, r.code, r.stderr)
			require.Contains(t, r.stdout+r.stderr, c.says)
			value, err := s.rdb.Get(t.Context(), rediskeys.Default().Counter(sku)).Result()
			require.NoError(t, err)
			require.Equal(t, c.counter, value)
		})
	}
}

// A shard's counter poisons whoever has used it.
func TestRebaseOfNeighboursThatShareACounter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	l := s.locker(t, redislock.WithShards(1))
	key := rediskeys.Scheme{Prefix: "fencing", Shards: 1}.Counter("")
	s.sells(t, l, "c")
	require.NoError(t, s.rdb.Set(t.Context(), key, "9223372036854775000", 0).Err())
	a, b := s.sells(t, l, "a"), s.sells(t, l, "b")
	ok(t, s.rebase("a", "--yes", "--shards=1")...)
	s.sells(t, l, "a")
	_, err := l.Acquire(t.Context(), "b")
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.NotContains(t, ok(t, s.rebase("b", "--yes", "--shards=1")...), "counter", "it is good already")
	for _, resource := range []string{"a", "b", "c", "a", "b"} {
		s.sells(t, l, resource)
	}
	for _, f := range []guard.Fence{a, b} {
		require.ErrorIs(t, s.store.Raise(t.Context(), f), guard.ErrStale)
	}
	require.Contains(t, ok(t, s.rebase("c", "--shards=1")...), "c needs nothing")
}

// A neighbour of the counter that is far ahead would else be out of reach of it, or its
// tokens among those that were given up.
func TestRebaseStaysInReachOfNeighbours(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	l := s.locker(t, redislock.WithShards(1))
	s.exec(t, "select fencing.raise('far', 1760000000000000000, 'n'), fencing.raise('a', 9223372036854775807, 'last')")
	require.NoError(t, s.rdb.Set(t.Context(), rediskeys.Scheme{Prefix: "fencing", Shards: 1}.Counter(""), "9223372036854775807", 0).Err())
	ok(t, s.rebase("a", "--yes", "--shards=1")...)
	for _, resource := range []string{"a", "far", "a"} {
		s.sells(t, l, resource)
	}
	require.Contains(t, ok(t, s.rebase("far", "--shards=1")...), "far needs nothing")
}

// Only a fence that no counter gets to is lowered, and not below what may come back.
func TestRebaseTo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, "select fencing.raise('"+sku+"', 1760000000000000000, 'nanoseconds')")
	s.counter(t, "5")
	require.Contains(t, ok(t, s.rebase(sku, "--yes")...), "fence is at 1760000000000000000\n  counter fencing:fence:{137} in Redis: 5 → 1760000000000000000\n")
	require.EqualValues(t, 1760000000000000001, s.sells(t, s.locker(t), sku).Token)
	fails(t, 2, `--to "0" is not a number from 1 to`, s.rebase(sku, "--to=0")...)

	s.exec(t, "select fencing.raise('"+sku+"', 9223372036854775807, 'last')")
	fails(t, 2, "--to 1760000000000000000: tokens up to 1760000000000000001 were handed out", s.rebase(sku, "--yes", "--to=1760000000000000000")...)
	require.Contains(t, ok(t, s.rebase(sku)...), "→ 1760000000000000001\n", "above the counter by itself")
	ok(t, s.rebase(sku, "--yes", "--to=1770000000000000000")...)
	require.EqualValues(t, 1770000000000000001, s.sells(t, s.locker(t), sku).Token)
	fails(t, 2, "were given up", s.rebase(sku, "--to=4611686018427387904")...)
}

func TestRebaseOfLocksInPostgres(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b, err := pglock.New(s.pool, pglock.WithRaise())
	require.NoError(t, err)
	l, err := lock.New(b, lock.WithGuards(s.store))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s.exec(t, "update fencing.lease_counter set token = 9223372036854775806")
	s.sells(t, l, sku)
	_, err = l.Acquire(t.Context(), sku)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
	require.ErrorContains(t, err, `"fencectl rebase"`)
	require.Contains(t, ok(t, "rebase", sku, "--yes", "--postgres", s.url), "counter of lock/pglock: 9223372036854775807 → 4503599627370496\n")
	s.sells(t, l, sku)
}

// The row rule has no ceiling, so that its columns are for the operator to lower.
func TestRebaseSaysWhichRowsStayAboveTheFence(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec(t, `create table inventory (sku text primary key, stock int not null); create table "Other" (id int)`)
	ok(t, "protect", "inventory", "--resource=sku", "--postgres", s.url)
	ok(t, "protect", `"Other"`, "--resource=''", "--postgres", s.url)
	s.exec(t, "insert into inventory values ('sku-42', 100, 9223372036854775807), ('sku-43', 100, 7)")
	s.exec(t, "select fencing.raise('"+sku+"', 9223372036854775807, 'last')")
	text := ok(t, s.rebase(sku, "--yes")...)
	require.Contains(t, text, "1 rows of public.inventory have a fence_token above the fence, so the row rule refuses their writes")
	require.NotContains(t, text, "Other")
	require.Equal(t, "9223372036854775807", s.query(t, "select fence_token::text from inventory where sku = 'sku-42'"))

	f := s.sells(t, s.locker(t), sku)
	write := func() error {
		return s.store.InTx(guard.NewContext(t.Context(), f), func(tx pgx.Tx) error {
			return pgguard.UpdateRow(guard.NewContext(t.Context(), f), tx, pgguard.RowUpdate{Table: pgx.Identifier{"inventory"}, Resource: sku, Key: map[string]any{"sku": "sku-42"}, Set: map[string]any{"stock": 50}})
		})
	}
	require.ErrorIs(t, write(), guard.ErrStale)
	s.exec(t, "update inventory set fence_token = "+strconv.Itoa(1<<52)+" where sku = 'sku-42'")
	require.NoError(t, write())
	require.Equal(t, "7", s.query(t, "select fence_token::text from inventory where sku = 'sku-43'"))
}

func TestRebaseIsForTheOwnerAndNeedsTheDatabase(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	fails(t, 3, "connect as the owner of the schema", "rebase", sku, "--yes", "--postgres", as(t, s.url, newRole(t, s.database, half1), half1))
	fails(t, 2, "no Postgres given", "rebase", sku, "--yes", s.args[2], s.args[3])
	fails(t, 2, "the name of one resource", "rebase")
	fails(t, 2, "control character", "rebase", "a\tb", "--postgres", s.url)
	fails(t, 3, `run "fencectl migrate up"`, "rebase", sku, "--postgres", newDatabase(t).url)
	fails(t, 3, "connection refused", "rebase", sku, "--postgres=postgres://app@127.0.0.1:1/shop")
	require.NoError(t, s.rdb.LPush(t.Context(), rediskeys.Default().Counter(sku), 1).Err())
	fails(t, 3, "has something that is no counter", s.rebase(sku, "--yes")...)
}
