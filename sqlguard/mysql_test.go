package sqlguard_test

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/sqlguard"
)

// What a name or a nonce is made of is nothing to the statement that enters,
// whatever the session makes of backslashes, quotes and bytes above ASCII.
func TestMySQLEntersInEverySession(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	held := guard.Fence{Resource: `r'\"; -- é漢`, Token: 7, Nonce: `n\'ß`, Holder: "A"}
	require.NoError(t, db.guard.Raise(t.Context(), held))
	for _, mode := range []string{"", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "PAD_CHAR_TO_FULL_LENGTH", "ORACLE"} {
		for _, charset := range []string{"utf8mb4", "latin1", "gbk", "sjis", "binary"} {
			conn, err := db.db.Conn(t.Context())
			require.NoError(t, err)
			for _, text := range []string{"SET NAMES " + charset, "SET SESSION sql_mode = '" + mode + "'"} {
				_, err = conn.ExecContext(t.Context(), text)
				require.NoError(t, err)
			}
			enter := func(f guard.Fence) error {
				tx, err := conn.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, tx.Rollback()) }()
				return sqlguard.Enter(t.Context(), sqlguard.MySQL, tx, f)
			}
			change := func(to func(f *guard.Fence)) guard.Fence {
				f := held
				to(&f)
				return f
			}
			session := mode + " " + charset
			require.NoError(t, enter(held), session)
			requireStale(t, enter(change(func(f *guard.Fence) { f.Token-- })), change(func(f *guard.Fence) { f.Token-- }), held)
			require.ErrorIs(t, enter(change(func(f *guard.Fence) { f.Token++ })), guard.ErrNotRaised, session)
			for _, nonce := range []string{`N\'ß`, `n\'ß `, `n'ß`, `n\'ss`} {
				require.ErrorIs(t, enter(change(func(f *guard.Fence) { f.Nonce = nonce })), guard.ErrConflict, "%s %q", session, nonce)
			}
			for _, resource := range []string{`R'\"; -- é漢`, `r'\"; -- é漢 `, `r'"; -- é漢`, `r'\"; -- e漢`} {
				require.ErrorIs(t, enter(change(func(f *guard.Fence) { f.Resource = resource })), guard.ErrNotRaised, "%s %q", session, resource)
			}
			_, err = conn.ExecContext(t.Context(), "SET NAMES utf8mb4, sql_mode = DEFAULT")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
	}
}

func TestMySQLEntersAndCommitsInOneMoreRoundTripEach(t *testing.T) {
	t.Parallel()
	dial, trips := servertest.CountTrips()
	counted := mariadb
	counted.open = func(t testing.TB) driver.Connector {
		return openMariaDB(t, func(c *mysql.Config) { c.DialFunc = dial })
	}
	db := newDatabase(t, counted)
	db.db.SetMaxOpenConns(1)
	ctx, _ := db.raised("r", 1, "A")
	sent := func(run func() error) int64 {
		before := trips.Load()
		require.NoError(t, run())
		return trips.Load() - before
	}
	enter := func(tx *sql.Tx) error { return db.guard.Enter(ctx, tx) }
	require.Equal(t, int64(4), sent(func() error { return db.guard.InTx(ctx, func(*sql.Tx) error { return nil }) }), "begin, enter, ask, commit")
	require.Equal(t, int64(5), sent(func() error { return db.guard.InTx(ctx, enter) }))
}

// A transaction that acquires another lock after it has begun to read does not see
// what the holder before it has written: it must not write over that.
func TestS25_MySQLRefusesASnapshotFromBeforeTheRaise(t *testing.T) {
	t.Parallel()
	for level, refused := range map[sql.IsolationLevel]bool{
		sql.LevelDefault: true, sql.LevelRepeatableRead: true, sql.LevelReadCommitted: false, sql.LevelSerializable: false,
	} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, mariadb)
			db.must("insert into item values ('stock', 100)")
			ctxOuter, outer := db.raised("outer", 1, "B")
			for name, pool := range map[string]*sql.DB{"Enter": db.db, "Wrap": db.openDB(sqlguard.Wrap(db.connector, db.dialect, patient))} {
				db.must("delete from fencing_fence where resource = 'inner'")
				_, _ = db.raised("inner", 1, "A")
				tx, err := pool.BeginTx(ctxOuter, &sql.TxOptions{Isolation: level})
				require.NoError(t, err)
				var n int
				require.NoError(t, tx.QueryRowContext(ctxOuter, "select count(*) from data").Scan(&n)) // takes the snapshot
				_, inner := db.raised("inner", 2, "B")
				ctx := guard.NewContext(t.Context(), outer, inner)
				if name == "Enter" {
					err = db.guard.Enter(ctx, tx)
				} else {
					_, err = tx.ExecContext(ctx, "update item set stock = 90")
				}
				require.Equal(t, refused, err != nil, "%s: %v", name, err)
				require.Equal(t, refused, sqlguard.Retryable(err), "%s: %v", name, err)
				require.NoError(t, tx.Rollback())
				require.NoError(t, db.guard.InTx(ctx, func(tx *sql.Tx) error { return db.guard.Enter(ctx, tx) }), "run again")
			}
		})
	}
}

// The server may give up before the raise does, if its own limit is shorter. Then the
// connection is well, and may be somebody else's by the time.
func TestMySQLRaiseEndsNoConnectionOnWhichTheServerHasAnswered(t *testing.T) {
	t.Parallel()
	impatient := mariadb
	impatient.open = func(t testing.TB) driver.Connector {
		return openMariaDB(t, func(c *mysql.Config) { c.Params = map[string]string{"innodb_lock_wait_timeout": "1"} })
	}
	db := newDatabase(t, impatient)
	ctx, _ := db.raised("r", 1, "A")
	other := db.openDB(db.connector)
	holder, err := sqlguard.New(other, db.dialect)
	require.NoError(t, err)
	tx, err := holder.BeginTx(ctx, nil)
	require.NoError(t, err)
	db.db.SetMaxOpenConns(1)
	connection := one[int](db, "select connection_id()")
	err = db.guard.Raise(t.Context(), fence("r", 2, "B"))
	require.ErrorIs(t, err, guard.ErrBlocked)
	require.ErrorContains(t, err, "1205")
	require.Equal(t, connection, one[int](db, "select connection_id()"))
	require.NoError(t, tx.Rollback())
}

// For a statement with arguments go-sql-driver has none but prepared ones.
func TestWrappedRowsOfAStatementWithArgumentsLackNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, mariadb)
	db.must("create procedure p (x int) begin select x; select x + 1; end")
	wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
	ctx, _ := db.raised("r", 1, "A")
	rows, err := wrapped.QueryContext(ctx, "call p(?)", 1)
	require.NoError(t, err)
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	require.Equal(t, "INT", types[0].DatabaseTypeName())
	require.True(t, rows.NextResultSet())
	require.True(t, rows.Next())
	var x int
	require.NoError(t, rows.Scan(&x))
	require.Equal(t, 2, x)
	require.NoError(t, rows.Close())
}
