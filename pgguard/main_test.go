package pgguard_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/pgguard"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

// eachMode runs a test once per way in which pgx can send a statement, on a
// database that they share.
func eachMode(t *testing.T, test func(t *testing.T, db *database)) {
	t.Parallel()
	shared := newDatabase(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { test(t, shared.in(t, mode, false)) })
	}
}

// eachModeAndBegin is eachMode, with transactions that begin at once and with such
// that do not; see pgguard.WithDeferredBegin.
func eachModeAndBegin(t *testing.T, test func(t *testing.T, db *database)) {
	t.Parallel()
	shared := newDatabase(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { test(t, shared.in(t, mode, false)) })
		t.Run(mode.String()+", deferred", func(t *testing.T) { test(t, shared.in(t, mode, true)) })
	}
}

// eachBegin runs a test with transactions that begin at once and with such that do
// not, each on a database of its own.
func eachBegin(t *testing.T, test func(t *testing.T, db *database)) {
	t.Parallel()
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		test(t, newDatabase(t))
	})
	t.Run("deferred", func(t *testing.T) {
		t.Parallel()
		db := newDatabase(t, pgguard.WithDeferredBegin())
		db.deferred = true
		test(t, db)
	})
}

// A database has the fence schema, a protected table, and a guard.
type database struct {
	*testing.T
	url      string
	pool     *pgxpool.Pool
	guard    *pgguard.Guard
	deferred bool // how the guard begins
}

// in returns a view of the database, with a pool of its own.
func (db *database) in(t *testing.T, mode pgx.QueryExecMode, deferred bool) *database {
	view := &database{T: t, url: db.url, deferred: deferred}
	view.pool = newPool(t, db.url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
	view.guard = view.newGuard(view.pool)
	return view
}

// newGuard returns a guard that begins as that of the database does.
func (db *database) newGuard(pool *pgxpool.Pool, opts ...pgguard.Option) *pgguard.Guard {
	db.Helper()
	if db.deferred {
		opts = append(opts, pgguard.WithDeferredBegin())
	}
	return newGuard(db, pool, opts...)
}

// unreached is a function for InTx under a fence that is refused. It must not be
// run, except where the fence is not checked before its first statement.
func (db *database) unreached() func(pgx.Tx) error {
	if db.deferred {
		return nothing
	}
	return nil
}

const tables = `
create table item (
    id text primary key,
    stock int not null check (stock > -1000000),
    fence_token bigint not null default 0);
create table kid (id text, item text references item deferrable initially deferred);
create table guarded (id text primary key, resource text not null, v int not null default 0);
create trigger guarded_fence before insert or update on guarded for each row
   when (coalesce(strpos(current_setting('fencing.held', true), E'\n' || new.resource || E'\n'), 0) = 0)
   execute function fencing.refuse_write();`

func newDatabase(t *testing.T, opts ...pgguard.Option) *database {
	t.Helper()
	url := servertest.Postgres(t)
	db := &database{T: t, url: url, pool: newPool(t, url)}
	install(t, db.pool)
	db.guard = newGuard(t, db.pool, opts...)
	return db
}

func install(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	files, err := filepath.Glob("../migrations/*.up.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, err = pool.Exec(context.Background(), string(text))
		require.NoError(t, err, file)
	}
	_, err = pool.Exec(context.Background(), tables)
	require.NoError(t, err)
}

func newPool(t testing.TB, url string, adjust ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 8
	for _, f := range adjust {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(func() { // a test that failed may have left a connection in use
		background(t, func() bool { pool.Close(); return true })()
	})
	return pool
}

func newGuard(t testing.TB, pool *pgxpool.Pool, opts ...pgguard.Option) *pgguard.Guard {
	t.Helper()
	g, err := pgguard.New(pool, opts...)
	require.NoError(t, err)
	return g
}

// fence makes a fence with a fresh nonce.
func fence(resource string, token guard.Token, holder string) guard.Fence {
	return guard.Fence{Resource: resource, Token: token, Nonce: rand.Text(), Holder: holder}
}

// raised raises a fence and returns it with a context that carries it.
func (db *database) raised(resource string, token guard.Token, holder string) (context.Context, guard.Fence) {
	db.Helper()
	f := fence(resource, token, holder)
	require.NoError(db, db.guard.Raise(db.Context(), f))
	return guard.NewContext(db.Context(), f), f
}

// must runs unguarded SQL.
func (db *database) must(sql string, args ...any) {
	db.Helper()
	_, err := db.pool.Exec(db.Context(), sql, args...)
	require.NoError(db, err, sql)
}

// one reads one value, unguarded.
func one[T any](db *database, sql string, args ...any) (v T) {
	db.Helper()
	require.NoError(db, db.pool.QueryRow(db.Context(), sql, args...).Scan(&v), sql)
	return v
}

func (db *database) stock(id string) int {
	db.Helper()
	return one[int](db, "select stock from item where id = $1", id)
}

// awaitBlocked waits until some backend of this database waits for the gate of
// resource.
func (db *database) awaitBlocked(resource string) {
	db.Helper()
	db.await("select count(*) > 0"+gateLocks+" and not l.granted", resource)
}

func (db *database) await(sql string, args ...any) {
	db.Helper()
	require.Eventually(db, func() bool {
		var met bool
		return db.pool.QueryRow(context.Background(), sql, args...).Scan(&met) == nil && met
	}, 20*time.Second, 2*time.Millisecond, sql)
}

const gateLocks = ` from pg_locks l, (select hashtextextended($1, 5070437) as gate) g
 where l.locktype = 'advisory' and l.objsubid = 1
   and l.database = (select oid from pg_database where datname = current_database())
   and l.classid = ((g.gate >> 32) & 4294967295)::oid and l.objid = (g.gate & 4294967295)::oid`

// background runs fn and returns a function that waits for its result.
func background[T any](t testing.TB, fn func() T) (result func() T) {
	done := make(chan T, 1)
	go func() { done <- fn() }()
	return func() T {
		t.Helper()
		select {
		case v := <-done:
			return v
		case <-time.After(30 * time.Second):
			require.FailNow(t, "it did not return within 30s")
			panic("unreachable")
		}
	}
}

// requireStale checks that err says that held gave way to current.
func requireStale(t testing.TB, err error, held, current guard.Fence) {
	t.Helper()
	require.ErrorIs(t, err, guard.ErrStale)
	var stale *guard.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, held, stale.Held)
	require.Equal(t, current.Resource, stale.Current.Resource)
	require.Equal(t, current.Token, stale.Current.Token)
	require.Equal(t, current.Holder, stale.Current.Holder)
	require.WithinDuration(t, time.Now(), stale.Since, time.Minute)
}

func unique(name string) string { return fmt.Sprintf("%s:%s", name, rand.Text()) }
