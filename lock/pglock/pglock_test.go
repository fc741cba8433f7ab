package pglock_test

import (
	"context"
	"crypto/rand"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sequencer"
)

const resource = "inventory:sku-42"

// connect returns a pool on url, with settings as parameters of its sessions.
func connect(t testing.TB, url string, settings ...string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		config.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// database returns the URL of a fresh database with the fence schema.
func database(t testing.TB, opts ...migrations.Option) string {
	t.Helper()
	url := servertest.Postgres(t)
	require.NoError(t, migrations.Up(t.Context(), connect(t, url), opts...))
	return url
}

func open(t testing.TB, pool *pgxpool.Pool, opts ...pglock.Option) *pglock.Backend {
	t.Helper()
	b, err := pglock.New(pool, opts...)
	require.NoError(t, err)
	return b
}

func request() lock.Request {
	return lock.Request{Resource: resource, Nonce: rand.Text(), Holder: "web-1", TTL: time.Minute}
}

func acquire(t testing.TB, b *pglock.Backend, r lock.Request) guard.Token {
	t.Helper()
	token, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	return token
}

func query[T any](t testing.TB, pool *pgxpool.Pool, sql string) (v T) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), sql).Scan(&v), sql)
	return v
}

func TestBackend(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, pool) })
}

func TestBackendThatRaises(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, pool, pglock.WithRaise()) })
}

func TestASchemaOfAnOddName(t *testing.T) {
	t.Parallel()
	const schema = `We"ird; schéma`
	pool := connect(t, database(t, migrations.WithSchema(schema)))
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, pool, pglock.WithSchema(schema)) })
}

// At a higher level contenders would fail instead of waiting for each other.
func TestASessionsIsolationLevelDoesNotMatter(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t), "default_transaction_isolation=serializable", "synchronous_commit=off")
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, pool) })
}

func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct := database(t)
	u, err := url.Parse(servertest.PgBouncer(t, direct))
	require.NoError(t, err)
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			u := *u
			q := u.Query()
			q.Set("default_query_exec_mode", mode)
			u.RawQuery = q.Encode()
			pool, straight := connect(t, u.String()), connect(t, direct)
			locktest.Run(t, func(t *testing.T) lock.Backend {
				return open(t, pool, pglock.WithListen(straight.Config().ConnConfig))
			})
		})
	}
}

// What nobody holds leaves nothing behind but the counters, whose number does not
// depend on how many resources there were.
func TestReleasedLeasesDoNotPileUp(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b := open(t, pool)
	counters := query[int](t, pool, "select count(*) from fencing.lease_counter")
	for range 300 {
		r := request()
		r.Resource = rand.Text()
		acquire(t, b, r)
		require.NoError(t, b.Release(t.Context(), r))
	}
	require.Zero(t, query[int](t, pool, "select count(*) from fencing.lease"))
	require.Zero(t, query[int](t, pool, "select count(*) from fencing.lease_spent"))
	require.Zero(t, query[int](t, pool, "select count(*) from fencing.sequence"))
	require.Equal(t, counters, query[int](t, pool, "select count(*) from fencing.lease_counter"))
}

// Between two visits of autovacuum the table must not grow by the size of a row with
// each lock. While something has an old snapshot, such as an ANALYZE on a busy machine,
// it has to; so one round in which it did not is enough.
func TestTheTableIsNotBloatedByUse(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b := open(t, pool)
	size := func() int { return query[int](t, pool, "select pg_relation_size('fencing.lease')") }
	var grown []int
	for range 10 {
		before := size()
		for range 1000 {
			r := request()
			acquire(t, b, r)
			require.NoError(t, b.Renew(t.Context(), r))
			require.NoError(t, b.Release(t.Context(), r))
		}
		if grown = append(grown, size()-before); grown[len(grown)-1] < 1000*100 {
			return
		}
	}
	t.Errorf("grown by %v bytes in rounds of 1000 locks", grown)
}

// The row of a holder who died is used again by the next one, and swept if there
// is none.
func TestWhatTheDeadLeaveBehind(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b := open(t, pool)
	dead := request()
	dead.TTL = 10 * time.Millisecond
	acquire(t, b, dead)
	next := request()
	require.Eventually(t, func() bool { _, err := b.Acquire(t.Context(), next); return err == nil }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, 1, query[int](t, pool, "select count(*) from fencing.lease"))
	require.NoError(t, b.Release(t.Context(), next))

	_, err := pool.Exec(t.Context(), `insert into fencing.lease select 'dead' || n, 'n', 1, '', '{n}', now() - interval '2 days' from generate_series(1, 50) n;
		insert into fencing.lease values ('yesterday', 'n', 1, '', '{n}', now() - interval '1 hour')`)
	require.NoError(t, err)
	for range 20_000 { // one release in 500 sweeps
		r := request()
		acquire(t, b, r)
		require.NoError(t, b.Release(t.Context(), r))
		if query[int](t, pool, "select count(*) from fencing.lease") == 1 {
			return
		}
	}
	t.Fatal("nothing sweeps the rows of the dead")
}

// Peers' fault: the token moves with each heartbeat, so that a holder's own fence
// becomes stale.
func TestRenewalsDoNotMoveTheToken(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, database(t)))
	r := request()
	token := acquire(t, b, r)
	for range 5 {
		require.NoError(t, b.Renew(t.Context(), r))
		for _, err := range b.RenewAll(t.Context(), []lock.Request{r}) {
			require.NoError(t, err)
		}
	}
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, token, h.Token)
	require.Equal(t, token, acquire(t, b, r))
}

// Peers' fault: the library closes what the caller passed in.
func TestTheCallersPoolStaysOpen(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	l, err := lock.New(open(t, pool))
	require.NoError(t, err)
	require.NoError(t, l.Do(t.Context(), resource, func(context.Context) error { return nil }))
	require.NoError(t, l.Close())
	require.NoError(t, pool.Ping(t.Context()))
	require.Zero(t, pool.Stat().AcquiredConns())
}

// Peers' fault: a lost lease is renewed after a successor has held and released.
func TestS27_ALostLeaseIsNotRenewedAfterASuccessorReleased(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, database(t)))
	old, successor := request(), request()
	old.TTL = 10 * time.Millisecond
	acquire(t, b, old)
	require.Eventually(t, func() bool { _, err := b.Acquire(t.Context(), successor); return err == nil }, 10*time.Second, 5*time.Millisecond)
	require.ErrorIs(t, b.Renew(t.Context(), old), lock.ErrLost)
	require.NoError(t, b.Release(t.Context(), successor))
	require.ErrorIs(t, b.Renew(t.Context(), old), lock.ErrLost)
	require.ErrorIs(t, b.Join(t.Context(), old, "m"), lock.ErrLost)
	require.ErrorIs(t, b.RenewAll(t.Context(), []lock.Request{old, old})[1], lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), old), lock.ErrLost)
}

// One who acquired and one who joined in the same process renew in one batch.
func TestARenewalMayBeInABatchTwice(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, database(t)))
	r, stranger := request(), request()
	acquire(t, b, r)
	require.NoError(t, b.Join(t.Context(), r, "second"))
	errs := b.RenewAll(t.Context(), []lock.Request{r, r, stranger, {Resource: resource, Nonce: r.Nonce}})
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], lock.ErrLost)
	require.ErrorIs(t, errs[3], guard.ErrInvalid, "without a TTL")
}

// Only the server's clock counts: no function of the leases takes a time.
func TestNoClientSendsATime(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	require.Positive(t, query[int](t, pool, "select count(*) from pg_proc where proname like 'lease%'"))
	require.Zero(t, query[int](t, pool, `select count(*) from pg_proc p join unnest(p.proargtypes::oid[]) a on true
		where p.pronamespace = 'fencing'::regnamespace and p.proname like 'lease%' and p.proname <> 'lease_left' and a in ('timestamptz'::regtype, 'timestamp'::regtype)`))
}

func TestS18_ARefusedDemandLeavesCounterAndConnectionAsTheyWere(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(database(t))
	require.NoError(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := request()
	r.After = math.MaxInt64 - 1
	_, err = open(t, pool).Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `pglock: acquire "inventory:sku-42"`)
	r.After = math.MaxInt64
	_, err = open(t, pool, pglock.WithMaxJump(math.MaxInt64)).Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
	require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "an error of the server costs no connection")
	require.Zero(t, query[int64](t, pool, "select sum(token)::bigint from fencing.lease_counter"))
	require.Zero(t, query[int](t, pool, "select count(*) from fencing.lease"), "S17: no orphan")
	require.EqualValues(t, 1, acquire(t, open(t, pool), request()))
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	pool := connect(t, "postgres://127.0.0.1:1/none")
	for says, f := range map[string]func() (*pglock.Backend, error){
		"pool is nil":              func() (*pglock.Backend, error) { return pglock.New(nil) },
		"option is nil":            func() (*pglock.Backend, error) { return pglock.New(pool, nil) },
		`schema name "" is`:        func() (*pglock.Backend, error) { return pglock.New(pool, pglock.WithSchema("")) },
		"1 to 63 bytes":            func() (*pglock.Backend, error) { return pglock.New(pool, pglock.WithSchema(strings.Repeat("s", 64))) },
		"without NUL":              func() (*pglock.Backend, error) { return pglock.New(pool, pglock.WithSchema("a\x00")) },
		"jump 0 is not positive":   func() (*pglock.Backend, error) { return pglock.New(pool, pglock.WithMaxJump(0)) },
		"for listening is nil":     func() (*pglock.Backend, error) { return pglock.New(pool, pglock.WithListen(nil)) },
		"not from pgx.ParseConfig": func() (*pglock.Backend, error) { return pglock.New(pool, pglock.WithListen(&pgx.ConnConfig{})) },
		"for listening is not": func() (*pglock.Backend, error) {
			return pglock.New(pool, pglock.WithListen(&pgx.ConnConfig{Config: pool.Config().ConnConfig.Config}))
		},
		"exclude each other": func() (*pglock.Backend, error) {
			return pglock.New(pool, pglock.WithListen(pool.Config().ConnConfig), pglock.WithoutListen())
		},
	} {
		_, err := f()
		require.ErrorContains(t, err, says)
	}
}
