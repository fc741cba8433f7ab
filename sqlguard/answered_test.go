package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

// After an error that the function has not minded, Postgres answers COMMIT by a
// rollback: nothing about that is unknown.
func TestCommitAfterASwallowedErrorIsARollback(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgres)
	db.must("insert into item values ('a', 0)")
	ctx, _ := db.raised("r", 1, "A")
	swallow := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "insert into item values ('a', 1)")
		require.Error(t, err)
		return nil
	}
	err := db.guard.InTx(ctx, swallow)
	require.ErrorContains(t, err, "nothing was written")
	require.NotErrorIs(t, err, guard.ErrCommitUnknown)

	tx, err := db.openDB(sqlguard.Wrap(db.connector, db.dialect)).BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, swallow(tx))
	err = tx.Commit()
	require.Error(t, err)
	require.NotErrorIs(t, err, guard.ErrCommitUnknown)
}

func TestOnlyAnErrorIsAnAnswerToACommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "23505"}, false},
		{&pgconn.PgError{Severity: "ERROR", Code: "23505"}, false},
		{&pqError{Code: "23505"}, false},
		{errors.New("pq: Could not complete operation in a failed transaction"), false},
		{errors.New("pq: could not complete operation in a failed transaction"), false}, // since lib/pq 1.11
		{&mysql.MySQLError{Number: 1213}, false},
		{&mysql.MySQLError{Number: 3101}, false},
		{ncrucesCode(5), false},
		{&mysql.MySQLError{Number: 1053}, true},
		{&mysql.MySQLError{Number: 1927}, true},
		{&mysql.MySQLError{Number: 2013}, true}, // of a proxy
		{&mysql.MySQLError{Number: 9001}, true},
		{&pgconn.PgError{Severity: "ERROR", Code: "57P01"}, true},
		{&pgconn.PgError{Severity: "ERROR", Code: "40003"}, true},
		{&pgconn.PgError{Severity: "PANIC", Code: "XX000"}, true},
		{&pgconn.PgError{Severity: "PANIK", SeverityUnlocalized: "PANIC", Code: "53100"}, true},
		{&pgconn.PgError{Severity: "FATAL", Code: "XX000"}, true},
		{&pgconn.PgError{Severity: "ERROR", Code: "08006"}, true},
	} {
		db := newDatabase(t, sqliteWAL)
		f := &faulty{dsnConnector: db.connector.(dsnConnector), commit: func(func() error) error { return c.err }}
		g, err := sqlguard.New(db.openDB(f), sqlguard.SQLite)
		require.NoError(t, err)
		ctx, _ := db.raised("r", 1, "A")
		err = g.InTx(ctx, func(*sql.Tx) error { return nil })
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.unknown, errors.Is(err, guard.ErrCommitUnknown), "%v", c.err)
	}
}

// A commit that finds no transaction has not rolled anything back.
func TestWrappedCommitWithoutATransactionIsUnknown(t *testing.T) {
	t.Parallel()
	db, wrapped, _ := newFaulty(t, func(f *faulty) {
		f.commit = func(commit func() error) error { return errors.Join(commit(), commit()) }
	})
	ctx, _ := db.raised("r", 1, "A")
	tx, err := wrapped.BeginTx(ctx, nil)
	require.NoError(t, err)
	err = tx.Commit()
	require.ErrorContains(t, err, "no transaction is active")
	require.ErrorIs(t, err, guard.ErrCommitUnknown)
}

// A raise whose commit was answered too late has not been blocked, and it may have
// changed something.
func TestRaiseThatWasCommittedIsNotSaidToBeBlocked(t *testing.T) {
	t.Parallel()
	for _, target := range []target{postgres, mariadb} {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, target)
			_, _ = db.raised("r", 1, "A")
			f := fence("r", 2, "B")
			var entered *sql.Tx
			slow := slowCommits{db.connector, func() { // somebody else has the gate afterwards
				var err error
				entered, err = db.guard.BeginTx(guard.NewContext(db.Context(), f), nil)
				require.NoError(t, err)
			}}
			g, err := sqlguard.New(db.openDB(slow), db.dialect, sqlguard.WithLockTimeout(time.Second))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err = g.Raise(ctx, f)
			require.NotErrorIs(t, err, guard.ErrBlocked)
			require.ErrorContains(t, err, "it is unknown whether the fence was raised")
			require.NoError(t, entered.Rollback())
			require.NoError(t, db.guard.Raise(t.Context(), f), "it was, and may be again")
		})
	}
}

// slowCommits makes connections whose commits are answered when the context of
// their transaction has ended.
type slowCommits struct {
	driver.Connector
	committed func()
}

type usualConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.SessionResetter
}

type slowConn struct {
	usualConn
	slowCommits
}

type slowTx struct {
	driver.Tx
	ctx       context.Context
	committed func()
}

func (s slowCommits) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return slowConn{c.(usualConn), s}, nil
}

func (c slowConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.usualConn.BeginTx(ctx, o)
	return slowTx{tx, ctx, c.committed}, err
}

func (t slowTx) Commit() error {
	if err := t.Tx.Commit(); err != nil {
		return err
	}
	t.committed()
	<-t.ctx.Done()
	return io.EOF
}
