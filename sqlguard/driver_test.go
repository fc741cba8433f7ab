package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

// A faulty driver is that of SQLite with a fault, or without what newer drivers
// have.
type faulty struct {
	dsnConnector
	old    bool                     // only what every driver must have
	skip   bool                     // ErrSkip for every statement that is not prepared
	fault  func(query string) error // before a statement is run
	commit func(commit func() error) error
	ends   atomic.Int32 // connections that were closed
	conns  atomic.Int32
}

func (f *faulty) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := f.dsnConnector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	f.conns.Add(1)
	c := &faultyConn{oldConn{inner, f}}
	if f.old {
		return &c.oldConn, nil
	}
	return c, nil
}

type oldConn struct {
	driver.Conn
	f *faulty
}

func (c *oldConn) Close() error { c.f.ends.Add(1); return c.Conn.Close() }

func (c *oldConn) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	return oldStmt{s, c.f, query}, nil
}

type oldStmt struct {
	inner driver.Stmt
	f     *faulty
	query string
}

func (s oldStmt) Close() error  { return s.inner.Close() }
func (s oldStmt) NumInput() int { return strings.Count(s.query, "?") }

func (s oldStmt) Exec(args []driver.Value) (driver.Result, error) {
	if err := s.f.fails(s.query); err != nil {
		return nil, err
	}
	return s.inner.(interface { // deprecated by its own name
		Exec([]driver.Value) (driver.Result, error)
	}).Exec(args)
}

func (s oldStmt) Query(args []driver.Value) (driver.Rows, error) {
	if err := s.f.fails(s.query); err != nil {
		return nil, err
	}
	r, err := s.inner.(interface { // deprecated by its own name
		Query([]driver.Value) (driver.Rows, error)
	}).Query(args)
	return oldRows{r}, err
}

// ColumnConverter is the older way; this one knows no strings.Builder.
func (s oldStmt) ColumnConverter(int) driver.ValueConverter { return driver.DefaultParameterConverter }

// oldRows have nothing optional.
type oldRows struct{ driver.Rows }

func (f *faulty) fails(query string) error {
	if f.fault == nil {
		return nil
	}
	return f.fault(query)
}

type faultyConn struct{ oldConn }

func (c *faultyConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.f.fails("BEGIN"); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return faultyTx{tx, c.f}, err
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.f.skip {
		return nil, driver.ErrSkip
	}
	if err := c.f.fails(query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.f.skip {
		return nil, driver.ErrSkip
	}
	if err := c.f.fails(query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

type faultyTx struct {
	driver.Tx
	f *faulty
}

func (tx faultyTx) Commit() error {
	if tx.f.commit == nil {
		return tx.Tx.Commit()
	}
	return tx.f.commit(tx.Tx.Commit)
}

// newFaulty returns a wrapped database on a faulty driver beside a plain one.
func newFaulty(t *testing.T, adjust func(*faulty)) (db *database, wrapped *sql.DB, f *faulty) {
	t.Helper()
	db = newDatabase(t, sqliteWAL)
	db.must("insert into item (id, stock) values ('a', 0)")
	f = &faulty{dsnConnector: db.connector.(dsnConnector)}
	adjust(f)
	return db, db.openDB(sqlguard.Wrap(f, db.dialect)), f
}

func TestWrapWorksWithOldDriversAndWithThoseThatSkip(t *testing.T) {
	t.Parallel()
	for name, adjust := range map[string]func(*faulty){
		"old":  func(f *faulty) { f.old = true },
		"skip": func(f *faulty) { f.skip = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, wrapped, f := newFaulty(t, adjust)
			stale, old := db.raised("r", 33, "A")
			for i, w := range writes {
				require.NoError(t, w.do(stale, wrapped, db.sql, i+1), w.name)
			}
			fresh, current := db.raised("r", 34, "B")
			before := db.data()
			for _, w := range writes {
				requireStale(t, w.do(stale, wrapped, db.sql, 9), old, current)
				require.ErrorIs(t, w.do(t.Context(), wrapped, db.sql, 9), guard.ErrNoFence, w.name)
			}
			require.Equal(t, before, db.data())
			_, err := wrapped.ExecContext(fresh, "update item set stock = ?")
			require.Error(t, err, "too few arguments")
			rows, err := wrapped.QueryContext(fresh, "select id, stock from item")
			require.NoError(t, err)
			types, err := rows.ColumnTypes()
			require.NoError(t, err)
			require.Len(t, types, 2)
			require.False(t, rows.NextResultSet())
			require.NoError(t, rows.Close())
			if f.old {
				_, err = wrapped.BeginTx(fresh, &sql.TxOptions{Isolation: sql.LevelSerializable})
				require.ErrorContains(t, err, "no isolation levels")
			}
			require.Zero(t, f.ends.Load(), "no connection was given up")
		})
	}
}

// ErrBadConn before the commit is for database/sql, which takes another
// connection.
func TestWrapRetriesABadConnectionOnce(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"BEGIN", "UPDATE fencing", "update item"} {
		var failed atomic.Bool
		db, wrapped, f := newFaulty(t, func(f *faulty) {
			f.fault = func(query string) error {
				if strings.HasPrefix(query, at) && failed.CompareAndSwap(false, true) {
					return driver.ErrBadConn
				}
				return nil
			}
		})
		ctx, _ := db.raised("r", 1, "A")
		_, err := wrapped.ExecContext(ctx, "update item set stock = stock + 1")
		require.NoError(t, err, at)
		require.True(t, failed.Load(), at)
		require.Equal(t, 1, db.stock("a"), at)
		require.EqualValues(t, 2, f.conns.Load(), at)
	}
}

// A lost reply to a commit is told, and is never a reason to run the statement
// again, though the driver says ErrBadConn.
func TestWrapTellsALostCommit(t *testing.T) {
	t.Parallel()
	for _, lost := range []error{io.ErrUnexpectedEOF, driver.ErrBadConn} {
		for name, do := range map[string]func(ctx context.Context, db *sql.DB) error{
			"Exec": func(ctx context.Context, db *sql.DB) error {
				_, err := db.ExecContext(ctx, "update item set stock = stock + 1")
				return err
			},
			"Query": func(ctx context.Context, db *sql.DB) error {
				rows, err := db.QueryContext(ctx, "update item set stock = stock + 1 returning id")
				if err != nil {
					return err
				}
				defer func() { _ = rows.Close() }()
				for rows.Next() {
				}
				return rows.Err()
			},
			"QueryRow": func(ctx context.Context, db *sql.DB) error {
				var id string
				return db.QueryRowContext(ctx, "update item set stock = stock + 1 returning id").Scan(&id)
			},
			"transaction": func(ctx context.Context, db *sql.DB) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, "update item set stock = stock + 1"); err != nil {
					return err
				}
				return tx.Commit()
			},
			"InTx of a guard": func(ctx context.Context, db *sql.DB) error {
				g, err := sqlguard.New(db, sqlguard.SQLite)
				if err != nil {
					return err
				}
				return g.InTx(ctx, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "update item set stock = stock + 1")
					return err
				})
			},
		} {
			db, wrapped, f := newFaulty(t, func(f *faulty) {
				f.commit = func(commit func() error) error { return errors.Join(commit(), lost) }
			})
			ctx, _ := db.raised("r", 1, "A")
			require.ErrorIs(t, do(ctx, wrapped), guard.ErrCommitUnknown, name)
			require.Equal(t, 1, db.stock("a"), "%s: applied once", name)
			require.EqualValues(t, 1, f.ends.Load(), "%s: the connection was given up", name)
		}
	}
}

func TestInTxTellsALostCommit(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, sqliteWAL)
	f := &faulty{dsnConnector: db.connector.(dsnConnector), commit: func(commit func() error) error { return errors.Join(commit(), io.EOF) }}
	g, err := sqlguard.New(db.openDB(f), sqlguard.SQLite)
	require.NoError(t, err)
	ctx, _ := db.raised("r", 1, "A")
	require.ErrorIs(t, g.InTx(ctx, func(*sql.Tx) error { return nil }), guard.ErrCommitUnknown)
}

func TestWrapDoesNotCommitOnADeadContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("the lease is gone")
	var cancel context.CancelCauseFunc
	db, wrapped, _ := newFaulty(t, func(f *faulty) {})
	ctx, _ := db.raised("r", 1, "A")

	// Between the statement and the commit, which an old driver sends without a
	// look at the context.
	for _, old := range []bool{false, true} {
		dying := &faulty{dsnConnector: db.connector.(dsnConnector), old: old}
		dying.fault = func(query string) error {
			if strings.HasPrefix(query, "update item") {
				cancel(cause)
			}
			return nil
		}
		pool := db.openDB(sqlguard.Wrap(dying, db.dialect))
		dead, c := context.WithCancelCause(ctx)
		cancel = c
		_, err := pool.ExecContext(dead, "update item set stock = 1")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.Zero(t, db.stock("a"))
	}

	// While rows are open.
	dead, c := context.WithCancelCause(ctx)
	rows, err := wrapped.QueryContext(dead, "update item set stock = 1 returning id")
	require.NoError(t, err)
	require.True(t, rows.Next())
	c(cause)
	_ = rows.Close() // or database/sql has closed them by now
	require.Error(t, rows.Err())
	require.Zero(t, db.stock("a"))

	// And with InTx.
	dead, c = context.WithCancelCause(ctx)
	err = db.guard.InTx(dead, func(tx *sql.Tx) error {
		_, err := tx.Exec("update item set stock = 1")
		c(cause)
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "nothing was written")
	require.Zero(t, db.stock("a"))
}

func TestInTxThatEndsItselfIsSaid(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, sqliteWAL)
	ctx, _ := db.raised("r", 1, "A")
	require.ErrorContains(t, db.guard.InTx(ctx, func(tx *sql.Tx) error { return tx.Commit() }), "has ended its transaction itself")
}

func TestWrapRefusesASecondStatementBesideOpenRows(t *testing.T) {
	t.Parallel()
	db, wrapped, _ := newFaulty(t, func(*faulty) {})
	db.must("insert into item (id, stock) values ('b', 0)")
	ctx, _ := db.raised("r", 1, "A")
	conn, err := wrapped.Conn(ctx)
	require.NoError(t, err)
	rows, err := conn.QueryContext(ctx, "select id from item")
	require.NoError(t, err)
	require.True(t, rows.Next())
	_, err = conn.ExecContext(ctx, "update item set stock = 1")
	require.ErrorContains(t, err, "close them first")
	_, err = conn.BeginTx(ctx, nil)
	require.ErrorContains(t, err, "close them first")
	require.NoError(t, rows.Close())
	_, err = conn.ExecContext(ctx, "update item set stock = 1")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestObserverIsToldOfRaisesAndRefusals(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		var events []guard.Event
		observe := sqlguard.WithObserver(func(e guard.Event) { events = append(events, e) })
		g := db.newGuard(observe)
		wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, observe))
		a, b := fence("r", 1, "A"), fence("r", 2, "B")
		require.NoError(t, g.Raise(t.Context(), a))
		require.NoError(t, g.Raise(t.Context(), b))
		require.Error(t, g.Raise(t.Context(), a))
		require.Error(t, g.InTx(guard.NewContext(t.Context(), a), func(*sql.Tx) error { return nil }))
		_, err := wrapped.ExecContext(guard.NewContext(t.Context(), a), "update item set stock = 1")
		require.Error(t, err)
		require.Len(t, events, 5)
		for i, want := range []guard.Event{{Kind: guard.EventRaised, Fence: a}, {Kind: guard.EventRaised, Fence: b}, {Kind: guard.EventRefused, Fence: a}, {Kind: guard.EventRefused, Fence: a}, {Kind: guard.EventRefused, Fence: a}} {
			require.Equal(t, want.Kind, events[i].Kind, i)
			require.Equal(t, want.Fence, events[i].Fence, i)
		}
	})
}
