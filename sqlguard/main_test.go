package sqlguard_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// A target is a kind of database that the tests run on.
type target struct {
	name    string
	dialect sqlguard.Dialect
	open    func(t testing.TB) driver.Connector // of a fresh database
}

var (
	postgres   = target{"postgres", sqlguard.Postgres, openPostgres}
	mariadb    = target{"mariadb", sqlguard.MySQL, func(t testing.TB) driver.Connector { return openMariaDB(t, nil) }}
	sqliteWAL  = target{"sqlite WAL", sqlguard.SQLite, func(t testing.TB) driver.Connector { return openSQLite(t, "journal_mode(wal)") }}
	sqliteRoll = target{"sqlite rollback journal", sqlguard.SQLite, func(t testing.TB) driver.Connector { return openSQLite(t, "journal_mode(delete)") }}
	targets    = []target{postgres, mariadb, sqliteWAL, sqliteRoll}
)

func openPostgres(t testing.TB) driver.Connector {
	config, err := pgx.ParseConfig(servertest.Postgres(t))
	require.NoError(t, err)
	return stdlib.GetConnector(*config)
}

func openMariaDB(t testing.TB, adjust func(*mysql.Config)) driver.Connector {
	config, err := mysql.ParseDSN(servertest.MariaDB(t))
	require.NoError(t, err)
	if adjust != nil {
		adjust(config)
	}
	c, err := mysql.NewConnector(config)
	require.NoError(t, err)
	return c
}

func openSQLite(t testing.TB, pragmas ...string) driver.Connector {
	dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=synchronous(off)"
	for _, p := range pragmas {
		dsn += "&_pragma=" + p
	}
	return dsnConnector{dsn}
}

// dsnConnector is a connector of a driver that has only names.
type dsnConnector struct{ dsn string }

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.Driver().Open(c.dsn) }
func (dsnConnector) Driver() driver.Driver                          { return &sqlite.Driver{} }

// eachTarget runs a test once per database.
func eachTarget(t *testing.T, test func(t *testing.T, db *database)) {
	t.Parallel()
	for _, target := range targets {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			test(t, newDatabase(t, target))
		})
	}
}

// A database has the fence schema, a table of data, and a guard.
type database struct {
	testing.TB
	target
	connector driver.Connector
	db        *sql.DB
	guard     *sqlguard.Guard
}

// patient is for a busy machine, which pauses everyone for seconds: the idle timeout
// is half of the lock timeout.
var patient = sqlguard.WithLockTimeout(40 * time.Second)

var tables = map[sqlguard.Dialect][]string{
	sqlguard.Postgres: {`create table item (id varchar(100) primary key, stock int not null)`, `create table data (k varchar(100) primary key, v text not null)`},
	sqlguard.MySQL:    {`create table item (id varchar(100) primary key, stock int not null)`, `create table data (k varchar(100) charset ascii collate ascii_bin primary key, v mediumtext not null)`},
	sqlguard.SQLite:   {`create table item (id varchar(100) primary key, stock int not null)`, `create table data (k varchar(100) primary key, v text not null)`},
}

func newDatabase(t testing.TB, target target, opts ...sqlguard.Option) *database {
	t.Helper()
	db := &database{TB: t, target: target, connector: target.open(t)}
	db.db = db.openDB(db.connector)
	require.NoError(t, migrations.UpDB(t.Context(), db.db, db.dialect))
	for _, table := range tables[db.dialect] {
		db.must(table)
	}
	db.guard = db.newGuard(append([]sqlguard.Option{patient}, opts...)...)
	return db
}

func (db *database) openDB(c driver.Connector) *sql.DB {
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(8)
	pool.SetMaxIdleConns(8)
	db.Cleanup(func() { require.NoError(db, pool.Close()) })
	return pool
}

func (db *database) newGuard(opts ...sqlguard.Option) *sqlguard.Guard {
	db.Helper()
	g, err := sqlguard.New(db.db, db.dialect, opts...)
	require.NoError(db, err)
	return g
}

// must runs unguarded SQL.
func (db *database) must(sql string, args ...any) {
	db.Helper()
	_, err := db.db.ExecContext(db.Context(), sql, args...)
	require.NoError(db, err, sql)
}

func one[T any](db *database, query string, args ...any) (v T) {
	db.Helper()
	require.NoError(db, db.db.QueryRowContext(db.Context(), query, args...).Scan(&v), query)
	return v
}

func (db *database) stock(id string) int {
	db.Helper()
	return one[int](db, "select stock from item where id = '"+id+"'")
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

// background runs fn and returns a function that waits for its result.
func background[V any](t testing.TB, fn func() V) (result func() V) {
	done := make(chan V, 1)
	go func() { done <- fn() }()
	return func() V {
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
