package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardtest"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

func TestIsolationLevels(t *testing.T) {
	t.Parallel()
	for _, target := range []target{postgres, mariadb} {
		for _, level := range levels {
			t.Run(fmt.Sprintf("%s %v", target.name, level), func(t *testing.T) {
				t.Parallel()
				db := newDatabase(t, target)
				s := store{db.guard, db.dialect, &sql.TxOptions{Isolation: level}}
				for _, check := range guardtest.Checks() {
					switch check.Name {
					case "S2_RaiseClosesTheReadWindow", "S3_PauseBetweenCheckAndWrite", "S4_LateCommit", "S35_SeveralFencesAreAllOrNothing", "HistoryOfAppends":
						t.Run(check.Name, func(t *testing.T) {
							ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
							defer cancel()
							require.NoError(t, check.Func(ctx, s))
						})
					}
				}
				// A read-only transaction enters too, and still is read-only.
				ctx, held := db.raised("ro", 1, "A")
				ro := &sql.TxOptions{Isolation: level, ReadOnly: true}
				require.NoError(t, db.guard.InTxOptions(ctx, ro, func(tx *sql.Tx) error {
					var n int
					return tx.QueryRow("select count(*) from item").Scan(&n)
				}))
				require.Error(t, db.guard.InTxOptions(ctx, ro, func(tx *sql.Tx) error {
					_, err := tx.Exec("insert into item (id, stock) values ('x', 1)")
					return err
				}))
				_, newer := db.raised("ro", 2, "B")
				requireStale(t, db.guard.InTxOptions(ctx, ro, func(*sql.Tx) error { return nil }), held, newer)
			})
		}
	}
}

// S25: at REPEATABLE READ, the default of MySQL, a transaction whose snapshot is
// older than the raise: a plain SELECT of the fence still finds the old one.
func TestS25_SnapshotOlderThanTheRaiseIsNoWayIn(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		db.must("insert into item (id, stock) values ('a', 5)")
		_, held := db.raised("r", 33, "A")
		tx, err := db.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: map[sqlguard.Dialect]sql.IsolationLevel{
			sqlguard.Postgres: sql.LevelRepeatableRead, sqlguard.MySQL: sql.LevelRepeatableRead, sqlguard.SQLite: sql.LevelDefault,
		}[db.dialect]})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var n int
		require.NoError(t, tx.QueryRow("select stock from item").Scan(&n)) // takes the snapshot
		newer := fence("r", 34, "B")
		err = db.newGuard(sqlguard.WithLockTimeout(300*time.Millisecond)).Raise(t.Context(), newer)
		if db.name == sqliteRoll.name {
			require.ErrorIs(t, err, guard.ErrBlocked, "with a rollback journal the reader keeps the raise from committing")
			return
		}
		require.NoError(t, err)
		if db.dialect == sqlguard.MySQL {
			var token int
			require.NoError(t, tx.QueryRow("select token from fencing_fence where resource = 'r'").Scan(&token))
			require.Equal(t, 33, token, "a plain read is fooled")
		}
		err = sqlguard.Enter(t.Context(), db.dialect, tx, held)
		if db.dialect == sqlguard.MySQL {
			requireStale(t, err, held, newer)
			return
		}
		// 40001 and SQLITE_BUSY_SNAPSHOT say only that something was written; the
		// second answer is definite.
		require.Error(t, err)
		require.NotErrorIs(t, err, guard.ErrStale)
		require.True(t, sqlguard.Retryable(err), "%v", err)
		require.NoError(t, tx.Rollback())
		requireStale(t, db.guard.InTx(guard.NewContext(t.Context(), held), func(*sql.Tx) error { return nil }), held, newer)
	})
}

func TestS34_SavepointRollbackKeepsWhatWasEnteredBefore(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		_, held := db.raised("r", 33, "A")
		tx, err := db.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, sqlguard.Enter(t.Context(), db.dialect, tx, held))
		for _, text := range []string{"savepoint s", "insert into item (id, stock) values ('a', 1)", "rollback to savepoint s"} {
			_, err := tx.Exec(text)
			require.NoError(t, err)
		}
		g := db.newGuard(sqlguard.WithLockTimeout(150 * time.Millisecond))
		require.ErrorIs(t, g.Raise(t.Context(), fence("r", 34, "B")), guard.ErrBlocked)
		require.NoError(t, sqlguard.Enter(t.Context(), db.dialect, tx, held), "as often as you like")
		require.NoError(t, tx.Commit())
	})
}

func TestEnterTakesTheFencesOfTheContextOrThoseGiven(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		ctx, a := db.raised("a", 1, "A")
		_, b := db.raised("b", 1, "A")
		missing := fence("c", 1, "A")
		enter := func(ctx context.Context, fences ...guard.Fence) error {
			conn, err := db.db.Conn(t.Context()) // a connection will do, as that of GORM
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback()) }()
			return sqlguard.Enter(ctx, db.dialect, conn, fences...)
		}
		require.NoError(t, enter(ctx))
		require.NoError(t, enter(t.Context(), b, a))
		require.ErrorIs(t, enter(t.Context()), guard.ErrNoFence)
		require.ErrorIs(t, enter(ctx, missing), guard.ErrNotRaised)
		require.ErrorIs(t, enter(t.Context(), b, missing, a), guard.ErrNotRaised)
		require.ErrorIs(t, enter(t.Context(), guard.Fence{Resource: "a"}), guard.ErrInvalid)
		require.ErrorContains(t, sqlguard.Enter(ctx, "oracle", nil, a), `unknown dialect "oracle"`)
	})
}

// The guard prepares what it enters by on its own pool. A program may have another
// one on the same database, and a connection of its own in place of a transaction.
func TestGuardEntersTransactionsOfOtherPools(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		ctx, old := db.raised("r", 33, "A")
		other := db.openDB(db.connector)
		wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, sqlguard.WithPassThrough()))
		enter := func(pool *sql.DB) error {
			tx, err := pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback()) }()
			return db.guard.Enter(ctx, tx)
		}
		pools := []*sql.DB{db.db, other, wrapped}
		for i, pool := range pools {
			require.NoError(t, enter(pool), "%d", i)
		}
		// It is in that transaction, wherever it was prepared.
		tx, err := other.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, db.guard.Enter(ctx, tx))
		newer := fence("r", 34, "B")
		require.ErrorIs(t, db.newGuard(sqlguard.WithLockTimeout(150*time.Millisecond)).Raise(t.Context(), newer), guard.ErrBlocked)
		require.NoError(t, tx.Commit())
		require.NoError(t, db.guard.Raise(t.Context(), newer))
		for _, pool := range pools {
			requireStale(t, enter(pool), old, newer)
		}
	})
}

func TestSQLiteInMemoryWorksWithOneConnection(t *testing.T) {
	t.Parallel()
	for _, wrapped := range []bool{false, true} {
		pool := sql.OpenDB(dsnConnector{":memory:"})
		if wrapped {
			pool = sql.OpenDB(sqlguard.Wrap(dsnConnector{":memory:"}, sqlguard.SQLite, sqlguard.WithPassThrough()))
		}
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		pool.SetMaxOpenConns(1)
		_, err := pool.Exec("create table item (id text primary key, stock int)")
		require.NoError(t, err)
		if wrapped {
			require.ErrorContains(t, migrations.UpDB(t.Context(), pool, sqlguard.SQLite), "opened without sqlguard.Wrap")
			continue
		}
		require.NoError(t, migrations.UpDB(t.Context(), pool, sqlguard.SQLite))
		g, err := sqlguard.New(pool, sqlguard.SQLite, sqlguard.WithLockTimeout(100*time.Millisecond))
		require.NoError(t, err)
		a, b := fence("r", 1, "A"), fence("r", 2, "B")
		ctx := guard.NewContext(t.Context(), a)
		require.NoError(t, g.Raise(t.Context(), a))
		require.NoError(t, g.InTx(ctx, func(tx *sql.Tx) error {
			require.ErrorIs(t, g.Raise(t.Context(), b), guard.ErrBlocked) // the transaction has the only connection
			_, err := tx.Exec("insert into item values ('a', 1)")
			return err
		}))
		require.NoError(t, g.Raise(t.Context(), b))
		requireStale(t, g.InTx(ctx, func(*sql.Tx) error { return nil }), a, b)
	}
}

func TestSQLiteWaitsForTheWriterWithoutABusyTimeout(t *testing.T) {
	t.Parallel()
	for _, target := range []target{sqliteWAL, sqliteRoll} {
		db := newDatabase(t, target)
		ctx, _ := db.raised("r", 1, "A")
		tx, err := db.guard.BeginTx(ctx, nil)
		require.NoError(t, err)
		waiting := background(t, func() error { return db.guard.InTx(ctx, func(*sql.Tx) error { return nil }) })
		short := db.newGuard(sqlguard.WithLockTimeout(50 * time.Millisecond))
		require.ErrorIs(t, short.InTx(ctx, func(*sql.Tx) error { return nil }), guard.ErrBlocked)
		require.NoError(t, tx.Commit())
		require.NoError(t, waiting())
	}
}

func TestDialects(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]sqlguard.Dialect{
		"postgres": sqlguard.Postgres, "PostgreSQL": sqlguard.Postgres, "pgx": sqlguard.Postgres,
		"mysql": sqlguard.MySQL, "MariaDB": sqlguard.MySQL, "sqlite": sqlguard.SQLite, "sqlite3": sqlguard.SQLite,
	} {
		got, err := sqlguard.ParseDialect(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := sqlguard.ParseDialect("oracle")
	require.ErrorContains(t, err, `unknown dialect "oracle"; there are "postgres", "mysql" and "sqlite"`)

	for _, target := range targets {
		pool := sql.OpenDB(target.open(t))
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		got, err := sqlguard.DialectOf(pool)
		require.NoError(t, err)
		require.Equal(t, target.dialect, got)
		got, err = sqlguard.DialectOf(sql.OpenDB(sqlguard.Wrap(target.open(t), target.dialect)))
		require.NoError(t, err)
		require.Equal(t, target.dialect, got)
	}
	_, err = sqlguard.DialectOf(nil)
	require.ErrorContains(t, err, "nil")
	_, err = sqlguard.DialectOf(sql.OpenDB(traced{dsnConnector{":memory:"}}))
	require.ErrorContains(t, err, "is not known; name it")
}

// traced hides its driver.
type traced struct{ dsnConnector }

func (traced) Driver() driver.Driver { return &struct{ sqlite.Driver }{} }

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	pool := sql.OpenDB(dsnConnector{":memory:"})
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	for want, c := range map[string]struct {
		dialect sqlguard.Dialect
		option  sqlguard.Option
	}{
		`unknown dialect "oracle"`:                {"oracle", sqlguard.WithLockTimeout(1)},
		`another name of a dialect`:               {"pgx", sqlguard.WithLockTimeout(1)},
		`unknown dialect ""`:                      {"", sqlguard.WithLockTimeout(1)},
		"an option is nil":                        {sqlguard.Postgres, nil},
		"lock timeout 0s":                         {sqlguard.SQLite, sqlguard.WithLockTimeout(0)},
		"lock timeout 1.5ms":                      {sqlguard.SQLite, sqlguard.WithLockTimeout(1500 * time.Microsecond)},
		"WithSchema is for Postgres":              {sqlguard.MySQL, sqlguard.WithSchema("x")},
		"idle_transaction_timeout":                {sqlguard.MySQL, sqlguard.WithIdleTimeout(time.Second)},
		"SQLite has no such timeout":              {sqlguard.SQLite, sqlguard.WithIdleTimeout(time.Second)},
		"is not shorter than the lock timeout":    {sqlguard.Postgres, sqlguard.WithIdleTimeout(time.Minute)},
		`schema name "" is not 1 to 63`:           {sqlguard.Postgres, sqlguard.WithSchema("")},
		"WithPassThrough is for Wrap":             {sqlguard.Postgres, sqlguard.WithPassThrough()},
		"the idle timeout 0s is not a whole numb": {sqlguard.Postgres, sqlguard.WithIdleTimeout(0)},
	} {
		_, err := sqlguard.New(pool, c.dialect, c.option)
		require.ErrorContains(t, err, want)
	}
	_, err := sqlguard.New(nil, sqlguard.SQLite)
	require.ErrorContains(t, err, "nil")
	wrapped := sql.OpenDB(sqlguard.Wrap(nil, sqlguard.SQLite))
	require.ErrorContains(t, wrapped.Ping(), "the connector is nil")
	require.NotNil(t, wrapped.Driver())
	wrapped = sql.OpenDB(sqlguard.Wrap(dsnConnector{":memory:"}, "oracle"))
	require.ErrorContains(t, wrapped.Ping(), `unknown dialect "oracle"`)
}

func TestMissingSchemaIsSaid(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		require.NoError(t, migrations.DownDB(t.Context(), db.db, db.dialect))
		g := db.newGuard()
		f := fence("r", 1, "A")
		require.ErrorIs(t, g.Raise(t.Context(), f), sqlguard.ErrSchema)
		require.ErrorIs(t, g.InTx(guard.NewContext(t.Context(), f), func(*sql.Tx) error { return nil }), sqlguard.ErrSchema)
		tx, err := db.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.ErrorIs(t, sqlguard.Enter(t.Context(), db.dialect, tx, f), sqlguard.ErrSchema)
		require.NoError(t, tx.Rollback())
	})
}

func TestNilIsRefusedAndDoesNotPanic(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		require.ErrorContains(t, db.guard.InTx(ctx, nil), "the function is nil")
		require.ErrorContains(t, sqlguard.Enter(ctx, db.dialect, nil), "the transaction is nil")
		require.ErrorContains(t, db.guard.Enter(ctx, nil), "the transaction is nil")
		require.ErrorContains(t, new(sqlguard.Guard).InTx(ctx, nil), "make it with New")
		require.NoError(t, db.guard.InTx(ctx, func(*sql.Tx) error { return nil }))
	})
}
