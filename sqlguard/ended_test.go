package sqlguard_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/sqlguard"
)

// lose makes the database roll back tx by itself, and returns the error with which
// it does so.
func (db *database) lose(tx *sql.Tx) error {
	if db.dialect == sqlguard.SQLite {
		_, err := tx.Exec("insert or rollback into item values ('a', 1)")
		return err
	}
	_, err := tx.Exec("update item set stock = stock + 1 where id = 'a'")
	require.NoError(db, err)
	other, err := db.db.BeginTx(db.Context(), nil)
	require.NoError(db, err)
	defer func() { require.NoError(db, other.Rollback()) }()
	// The one that has written less is the victim of a deadlock.
	for _, text := range []string{"update item set stock = stock + 1 where id = 'b'", "insert into data values ('x', 'x'), ('y', 'y'), ('z', 'z')"} {
		_, err = other.Exec(text)
		require.NoError(db, err)
	}
	waits := background(db, func() error {
		_, err := other.Exec("update item set stock = stock + 1 where id = 'a'")
		return err
	})
	require.Eventually(db, func() bool {
		return one[int](db, "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'") > 0
	}, 30*time.Second, 5*time.Millisecond)
	_, err = tx.Exec("update item set stock = stock + 1 where id = 'b'")
	require.NoError(db, waits())
	return err
}

// A function that goes on after the database has rolled back its transaction writes
// without a fence. That cannot be kept from happening without Wrap; but nobody is
// told that all is well, or that nothing was written.
func TestInTxTellsThatItsTransactionHadEnded(t *testing.T) {
	t.Parallel()
	for _, target := range []target{mariadb, sqliteWAL} {
		for name, fn := range map[string]func(db *database, tx *sql.Tx){
			"swallowed": func(db *database, tx *sql.Tx) { require.Error(db, db.lose(tx)) },
			"went on": func(db *database, tx *sql.Tx) {
				require.Error(db, db.lose(tx))
				require.NoError(db, db.guard.Raise(db.Context(), fence("r", 2, "B")))
				_, err := tx.Exec("update item set stock = 70 where id = 'stock'")
				require.NoError(db, err)
			},
			"ended by SQL": func(db *database, tx *sql.Tx) {
				_, err := tx.Exec("commit")
				require.NoError(db, err)
			},
		} {
			t.Run(target.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				db := newDatabase(t, target)
				db.must("insert into item values ('a', 0), ('b', 0), ('stock', 100)")
				ctx, _ := db.raised("r", 1, "A")
				err := db.guard.InTx(ctx, func(tx *sql.Tx) error { fn(db, tx); return nil })
				require.ErrorIs(t, err, guard.ErrCommitUnknown)
				require.ErrorContains(t, err, "had ended before")
				require.False(t, sqlguard.Retryable(err))

				// With Wrap nothing is run after that.
				db.must("update item set stock = 100")
				if name != "went on" {
					return
				}
				g, err := sqlguard.New(db.openDB(sqlguard.Wrap(db.connector, db.dialect)), db.dialect)
				require.NoError(t, err)
				held, err := g.Issue(t.Context(), "r", "nonce", "A")
				require.NoError(t, err)
				ctx = guard.NewContext(t.Context(), held)
				db.must("delete from data")
				err = g.InTx(ctx, func(tx *sql.Tx) error {
					require.Error(t, db.lose(tx))
					_, err := tx.ExecContext(ctx, "update item set stock = 70 where id = 'stock'")
					require.Error(t, err)
					return nil
				})
				require.ErrorContains(t, err, "nothing was written")
				require.NotErrorIs(t, err, guard.ErrCommitUnknown)
				require.Equal(t, 100, db.stock("stock"))
			})
		}
	}
}

// Where autocommit is 0 another transaction begins by itself after the one that was
// lost: that there is one means nothing.
func TestInTxCommitsNothingWithoutAutocommit(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	db.must("insert into item values ('a', 0), ('b', 0), ('stock', 100)")
	config, err := mysql.ParseDSN(servertest.MariaDB(t))
	require.NoError(t, err)
	config.DBName = one[string](db, "select database()")
	config.Params = map[string]string{"autocommit": "0"}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	g, err := sqlguard.New(db.openDB(connector), db.dialect)
	require.NoError(t, err)
	ctx, _ := db.raised("r", 1, "A")
	err = g.InTx(ctx, func(tx *sql.Tx) error {
		require.Error(t, db.lose(tx))
		db.raised("r", 2, "B")
		_, err := tx.Exec("update item set stock = 70 where id = 'stock'")
		return err
	})
	require.ErrorContains(t, err, "autocommit is 0")
	require.Equal(t, 100, db.stock("stock"))

	tx, err := db.openDB(connector).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = sqlguard.OpenInMySQL(t.Context(), tx)
	require.ErrorContains(t, err, "autocommit is 0")
	require.NoError(t, tx.Rollback())
}

func TestMySQLWithoutAVariableIsAskedInAnotherWay(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	tx, err := db.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	open, err := sqlguard.OpenInMySQL(context.Background(), tx)
	require.NoError(t, err)
	require.True(t, open)
	_, err = tx.Exec("rollback")
	require.NoError(t, err)
	open, err = sqlguard.OpenInMySQL(context.Background(), tx)
	require.NoError(t, err)
	require.False(t, open)
	require.NoError(t, tx.Rollback())
}
