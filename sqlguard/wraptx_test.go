package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

// The database rolls the transaction back by itself, and what the program sends
// afterwards would be committed one by one.
func TestWrappedTransactionThatTheDatabaseEndedRunsNothingMore(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, sqliteWAL)
	wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
	db.must("insert into item (id, stock) values ('a', 5), ('b', 5)")
	ctx, _ := db.raised("r", 33, "A")
	tx, err := wrapped.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "insert or rollback into item (id, stock) values ('a', 6)")
	require.ErrorContains(t, err, "UNIQUE")
	_, err = tx.ExecContext(ctx, "update item set stock = 7")
	require.ErrorContains(t, err, "has rolled back this transaction")
	require.ErrorContains(t, tx.Commit(), "rolled back")
	require.Equal(t, []string{"a:5", "b:5"}, db.data())
	_, err = wrapped.ExecContext(ctx, "update item set stock = 8")
	require.NoError(t, err)
}

func TestWrappedDeadlockInMariaDBRunsNothingMore(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
	db.must("insert into item (id, stock) values ('a', 5), ('b', 5)")
	ctx, _ := db.raised("r", 33, "A")
	var txs [2]*sql.Tx
	for i, id := range []string{"a", "b"} {
		var err error
		txs[i], err = wrapped.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = txs[i].ExecContext(ctx, "update item set stock = 6 where id = '"+id+"'")
		require.NoError(t, err)
	}
	errs := make([]error, 2)
	first := background(t, func() error {
		_, err := txs[0].ExecContext(ctx, "update item set stock = 6 where id = 'b'")
		return err
	})
	_, errs[1] = txs[1].ExecContext(ctx, "update item set stock = 6 where id = 'a'")
	if errs[1] == nil { // the other one is the victim, or waits for this one
		defer func() { require.NoError(t, txs[1].Rollback()) }()
	}
	errs[0] = first()
	victim := 0
	if errs[1] != nil {
		victim = 1
	}
	require.True(t, sqlguard.Retryable(errs[victim]), "%v", errs[victim])
	_, err := txs[victim].ExecContext(ctx, "insert into item (id, stock) values ('c', 1)")
	require.ErrorContains(t, err, "has rolled back this transaction")
	require.ErrorContains(t, txs[victim].Commit(), "rolled back")
	if victim == 1 {
		require.NoError(t, txs[0].Rollback())
	}
	require.NotContains(t, db.data(), "c:1")
}

// A lock wait timeout undoes the statement alone, unless innodb_rollback_on_timeout is
// set, and in MariaDB NOWAIT is one.
func TestWrappedTransactionInMariaDBGoesOnAfterALockWaitTimeout(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
	db.must("insert into item (id, stock) values ('a', 5)")
	other, err := db.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = other.Exec("update item set stock = 6")
	require.NoError(t, err)
	ctx, _ := db.raised("r", 33, "A")
	tx, err := wrapped.BeginTx(ctx, nil)
	require.NoError(t, err)
	err = tx.QueryRow("select stock from item for update nowait").Scan(new(int))
	require.ErrorContains(t, err, "1205")
	require.NoError(t, other.Rollback())
	_, err = tx.Exec("update item set stock = 7")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, 7, db.stock("a"))
}

// With some errors, such as a changed snapshot or a deadlock, the database has rolled
// the transaction back when it could not enter, and the fences of before are gone.
func TestWrappedTransactionThatCannotEnterRunsNothingMore(t *testing.T) {
	eachWrapped(t, func(t *testing.T, db *database, wrapped *sql.DB) {
		outer, _ := db.raised("outer", 1, "A")
		stale, f := db.raised("inner", 1, "A")
		db.raised("inner", 2, "B")
		tx, err := wrapped.BeginTx(outer, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(outer, "insert into item (id, stock) values ('a', 5)")
		require.NoError(t, err)
		_, err = tx.ExecContext(guard.NewContext(outer, f), "insert into item (id, stock) values ('b', 5)")
		require.ErrorIs(t, err, guard.ErrStale)
		for _, ctx := range []context.Context{outer, stale, t.Context()} {
			_, err = tx.ExecContext(ctx, "insert into item (id, stock) values ('late', 5)")
			require.ErrorContains(t, err, "has to be rolled back")
		}
		err = tx.Commit()
		require.ErrorContains(t, err, "nothing was written")
		require.NotErrorIs(t, err, guard.ErrCommitUnknown)
		require.Empty(t, db.data())

		onWrapped, err := sqlguard.New(wrapped, db.dialect, patient)
		require.NoError(t, err)
		err = onWrapped.InTx(outer, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(stale, "insert into item (id, stock) values ('b', 5)")
			require.ErrorIs(t, err, guard.ErrStale)
			return nil
		})
		require.ErrorContains(t, err, "nothing was written")
		require.NotErrorIs(t, err, guard.ErrCommitUnknown)
	})
}

// With _txlock=immediate BEGIN takes the write lock, and waits for it no less.
func TestWrappedTransactionWaitsForTheWriteLockAtBegin(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, target{"sqlite", sqlguard.SQLite, func(t testing.TB) driver.Connector {
		return dsnConnector{openSQLite(t, "journal_mode(wal)").(dsnConnector).dsn + "&_txlock=immediate"}
	}})
	wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, patient))
	ctx, _ := db.raised("r", 1, "A")
	first, err := wrapped.BeginTx(ctx, nil)
	require.NoError(t, err)
	second := background(t, func() error {
		_, err := wrapped.ExecContext(ctx, "insert into item values ('b', 1)")
		return err
	})
	const limit = 200 * time.Millisecond
	start := time.Now()
	_, err = db.openDB(sqlguard.Wrap(db.connector, db.dialect, sqlguard.WithLockTimeout(limit))).ExecContext(ctx, "insert into item values ('c', 1)")
	require.True(t, sqlguard.Retryable(err), "%v", err)
	require.Greater(t, time.Since(start), limit/2)
	require.NoError(t, first.Commit())
	require.NoError(t, second())
}

// Without a fence statements are let through with which MySQL commits. A fence would be
// entered after that for one statement, and given up before the next.
func TestWrappedTransactionThatHasEndedTakesNoFence(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, sqlguard.WithPassThrough()))
	db.must("insert into item values ('a', 5)")
	db.must("create procedure p () commit")
	ctx, _ := db.raised("r", 33, "A")
	for _, text := range []string{"create table other (id int)", "call p()"} {
		tx, err := wrapped.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "update item set stock = stock + 1")
		require.NoError(t, err)
		_, err = tx.Exec(text)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "update item set stock = 9")
		require.ErrorContains(t, err, "has ended this transaction")
		require.NoError(t, tx.Commit())
	}
	require.Equal(t, []string{"a:7"}, db.data())
}

// glebarez/go-sqlite leaves the transaction of a failed commit on the connection.
func TestWrappedCommitThatFailsLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	busy := true
	db, wrapped, _ := newFaulty(t, func(f *faulty) {
		f.commit = func(commit func() error) error {
			if busy {
				return cgoError{5, 5}
			}
			return commit()
		}
	})
	wrapped.SetMaxOpenConns(1)
	ctx, _ := db.raised("r", 1, "A")
	_, err := wrapped.ExecContext(ctx, "update item set stock = 7")
	require.ErrorIs(t, err, cgoError{5, 5})
	busy = false
	_, err = wrapped.ExecContext(ctx, "update item set stock = stock + 1")
	require.NoError(t, err)
	require.Equal(t, 1, db.stock("a"))
}
