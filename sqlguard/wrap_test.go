package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardtest"
	"github.com/go-fencing/fencing/sqlguard"
)

// wrappedTargets has further ways in which drivers send statements.
var wrappedTargets = append([]target{{"mariadb interpolating", sqlguard.MySQL, func(t testing.TB) driver.Connector {
	return openMariaDB(t, func(c *mysql.Config) { c.InterpolateParams = true; c.ParseTime = true; c.ClientFoundRows = true })
}}}, targets...)

// eachWrapped runs a test once per driver, with a wrapped database besides the
// plain one.
func eachWrapped(t *testing.T, test func(t *testing.T, db *database, wrapped *sql.DB), opts ...sqlguard.Option) {
	t.Parallel()
	for _, target := range wrappedTargets {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, target)
			test(t, db, db.openDB(sqlguard.Wrap(db.connector, db.dialect, append(opts[:len(opts):len(opts)], patient)...)))
		})
	}
}

// sql writes a statement with the placeholders of the dialect.
func (db *database) sql(query string) string { return table{dialect: db.dialect}.sql(query) }

// A write is a way to set the stock of item "a" on a *sql.DB.
type write struct {
	name string
	do   func(ctx context.Context, db *sql.DB, sql func(string) string, n int) error
}

var writes = []write{
	{"Exec", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		result, err := db.ExecContext(ctx, q("update item set stock = ? where id = ?"), n, "a")
		if err != nil {
			return err
		}
		if rows, err := result.RowsAffected(); err != nil || rows != 1 {
			return errors.Join(errors.New("one row was to be affected"), err)
		}
		return nil
	}},
	{"Exec without arguments", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		_, err := db.ExecContext(ctx, "update item set stock = "+string(rune('0'+n))+" where id = 'a'")
		return err
	}},
	{"transaction", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(context.Background(), q("update item set stock = ? where id = ?"), n, "a"); err != nil {
			return err
		}
		return tx.Commit()
	}},
	{"prepared", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		s, err := db.PrepareContext(ctx, q("update item set stock = ? where id = ?"))
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		_, err = s.ExecContext(ctx, n, "a")
		return err
	}},
	{"prepared, in a transaction", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		s, err := tx.PrepareContext(ctx, q("update item set stock = ? where id = ?"))
		if err != nil {
			return err
		}
		if _, err := s.ExecContext(ctx, n, "a"); err != nil {
			return err
		}
		return tx.Commit()
	}},
	{"pinned connection", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		conn, err := db.Conn(context.Background())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = conn.ExecContext(ctx, q("update item set stock = ? where id = ?"), n, "a")
		return err
	}},
	{"Query as a write", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		// Not RETURNING after UPDATE, which MariaDB has not.
		rows, err := db.QueryContext(ctx, q("insert into item (id, stock) values (?, ?) returning id"), "new", n)
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		return errors.Join(rows.Err(), rows.Close())
	}},
	{"QueryRow as a write", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		var id string
		return db.QueryRowContext(ctx, q("insert into item (id, stock) values (?, ?) returning id"), "row", n).Scan(&id)
	}},
	{"prepared QueryRow as a write", func(ctx context.Context, db *sql.DB, q func(string) string, n int) error {
		s, err := db.PrepareContext(ctx, q("insert into item (id, stock) values (?, ?) returning id"))
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		var id string
		return s.QueryRowContext(ctx, "prep", n).Scan(&id)
	}},
}

// data is all of table item, to see that nothing was written.
func (db *database) data() (all []string) {
	db.Helper()
	concat := "id || ':' || stock"
	if db.dialect == sqlguard.MySQL {
		concat = "concat(id, ':', stock)"
	}
	rows, err := db.db.QueryContext(db.Context(), "select "+concat+" from item order by id")
	require.NoError(db, err)
	defer func() { require.NoError(db, rows.Close()) }()
	for rows.Next() {
		var s string
		require.NoError(db, rows.Scan(&s))
		all = append(all, s)
	}
	require.NoError(db, rows.Err())
	return all
}

func TestWrappedWritesAreFenced(t *testing.T) {
	eachWrapped(t, func(t *testing.T, db *database, wrapped *sql.DB) {
		db.must("insert into item (id, stock) values ('a', 0)")
		stale, old := db.raised("r", 33, "A")
		for i, w := range writes {
			before := db.data()
			require.NoError(t, w.do(stale, wrapped, db.sql, i+1), w.name)
			require.NotEqual(t, before, db.data(), w.name)
		}
		fresh, current := db.raised("r", 34, "B")
		db.must("delete from item where id <> 'a'")
		unraised := fence("other", 1, "C")
		before := db.data()
		for _, w := range writes {
			requireStale(t, w.do(stale, wrapped, db.sql, 9), old, current)
			require.ErrorIs(t, w.do(guard.NewContext(t.Context(), unraised), wrapped, db.sql, 9), guard.ErrNotRaised, w.name)
			require.ErrorIs(t, w.do(guard.NewContext(fresh, unraised), wrapped, db.sql, 9), guard.ErrNotRaised, w.name)
			require.ErrorIs(t, w.do(t.Context(), wrapped, db.sql, 9), guard.ErrNoFence, w.name)
			require.ErrorIs(t, w.do(guard.NewContext(t.Context(), guard.Fence{Resource: "r"}), wrapped, db.sql, 9), guard.ErrInvalid, w.name)
			require.Equal(t, before, db.data(), w.name)
		}
		for i, w := range writes {
			require.NoError(t, w.do(fresh, wrapped, db.sql, i+1), w.name)
		}
		require.Zero(t, wrapped.Stats().InUse)
	})
}

func TestWrappedPassThroughLetsUnfencedStatementsThroughAndNoStaleOne(t *testing.T) {
	eachWrapped(t, func(t *testing.T, db *database, wrapped *sql.DB) {
		db.must("insert into item (id, stock) values ('a', 0)")
		stale, _ := db.raised("r", 33, "A")
		db.raised("r", 34, "B")
		for i, w := range writes {
			require.NoError(t, w.do(t.Context(), wrapped, db.sql, i+1), w.name)
			require.ErrorIs(t, w.do(stale, wrapped, db.sql, 9), guard.ErrStale, w.name)
		}
		// A transaction that began without a fence takes no stale statement either.
		tx, err := wrapped.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(stale, "update item set stock = 9")
		require.ErrorIs(t, err, guard.ErrStale)
		require.NoError(t, tx.Rollback())
	}, sqlguard.WithPassThrough())
}

func TestWrappedReadsNeedNoFence(t *testing.T) {
	eachWrapped(t, func(t *testing.T, db *database, wrapped *sql.DB) {
		db.must("insert into item (id, stock) values ('a', 5)")
		fresh, _ := db.raised("r", 33, "A")
		for _, ctx := range []context.Context{t.Context(), fresh} {
			var n int
			require.NoError(t, wrapped.QueryRowContext(ctx, db.sql("select stock from item where id = ?"), "a").Scan(&n))
			require.Equal(t, 5, n)
			// The word is in a name: a read-only transaction finds out.
			require.NoError(t, wrapped.QueryRowContext(ctx, "with x as (select stock as stock from item) select x.stock as stock from x").Scan(&n))
			require.NoError(t, wrapped.QueryRowContext(ctx, "select replace('5', 'x', 'y')").Scan(&n))
			require.Equal(t, 5, n)
			tx, err := wrapped.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
			require.NoError(t, err)
			require.NoError(t, tx.QueryRowContext(ctx, "select stock from item").Scan(&n))
			_, err = tx.ExecContext(ctx, "update item set stock = 6")
			require.Error(t, err)
			if ctx != fresh {
				require.ErrorIs(t, err, guard.ErrNoFence)
			}
			require.NoError(t, tx.Rollback())
		}
		require.Equal(t, 5, db.stock("a"))
		require.NoError(t, wrapped.PingContext(t.Context()))
		_, err := wrapped.ExecContext(fresh, "update item set stock = 6") // the connection is no longer read-only
		require.NoError(t, err)
	})
}

func TestWrappedTransactionControlBySQLIsRefused(t *testing.T) {
	eachWrapped(t, func(t *testing.T, db *database, wrapped *sql.DB) {
		db.must("insert into item (id, stock) values ('a', 5)")
		fresh, _ := db.raised("r", 33, "A")
		for _, text := range []string{"begin", "COMMIT", "/* x */ rollback", "update item set stock = 1; commit"} {
			_, err := wrapped.ExecContext(fresh, text)
			require.ErrorContains(t, err, "transactions are begun and ended through database/sql", text)
			tx, err := wrapped.BeginTx(fresh, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(fresh, text)
			require.ErrorContains(t, err, "transactions are begun and ended through database/sql", text)
			require.NoError(t, tx.Rollback())
		}
		require.Equal(t, 5, db.stock("a"))
		if db.dialect == sqlguard.MySQL {
			_, err := wrapped.ExecContext(fresh, "truncate table item")
			require.ErrorContains(t, err, "MySQL commits a transaction before this statement")
			require.Equal(t, 5, db.stock("a"))
		}
	})
}

func TestS34_WrappedSavepointRollbackKeepsTheFence(t *testing.T) {
	eachWrapped(t, func(t *testing.T, db *database, wrapped *sql.DB) {
		db.must("insert into item (id, stock) values ('a', 5)")
		ctx, old := db.raised("r", 33, "A")
		tx, err := wrapped.BeginTx(ctx, nil)
		require.NoError(t, err)
		for _, text := range []string{"savepoint s", "update item set stock = 6", "rollback to savepoint s"} {
			_, err := tx.ExecContext(ctx, text)
			require.NoError(t, err, text)
		}
		blocked, err := sqlguard.New(db.db, db.dialect, sqlguard.WithLockTimeout(150e6))
		require.NoError(t, err)
		newer := fence("r", 34, "B")
		require.ErrorIs(t, blocked.Raise(t.Context(), newer), guard.ErrBlocked)
		_, err = tx.ExecContext(ctx, "update item set stock = 7")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, 7, db.stock("a"))
		require.NoError(t, blocked.Raise(t.Context(), newer))
		_, err = wrapped.ExecContext(ctx, "update item set stock = 8")
		requireStale(t, err, old, newer)
	})
}

// wrappedStore has a guard on a wrapped database, and transactions of that.
type wrappedStore struct {
	*sqlguard.Guard
	db      *sql.DB
	dialect sqlguard.Dialect
}

func (s wrappedStore) Update(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
	for {
		err := s.once(ctx, fn)
		if !sqlguard.Retryable(err) {
			return err
		}
	}
}

func (s wrappedStore) once(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(ctx, table{tx, s.dialect}); err != nil {
		return err
	}
	return tx.Commit()
}

func TestWrappedConformance(t *testing.T) {
	eachWrapped(t, func(t *testing.T, db *database, wrapped *sql.DB) {
		g, err := sqlguard.New(wrapped, db.dialect, patient)
		require.NoError(t, err)
		guardtest.Run(t, func(*testing.T) guardtest.Store { return wrappedStore{g, wrapped, db.dialect} })
	})
}
