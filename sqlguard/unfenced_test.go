package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/sqlguard"
)

func TestWrappedPragmaThatMayChangeSomethingNeedsAFence(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, sqliteWAL)
	db.must("insert into item values ('stock', 100)")
	w := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
	readOnly, err := w.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, readOnly.Rollback()) }()
	run := func(text string) error {
		for _, query := range []func(string, ...any) (*sql.Rows, error){w.Query, readOnly.Query} {
			rows, err := query(text)
			if err != nil {
				return err
			}
			for rows.Next() {
			}
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
		}
		return nil
	}
	for _, text := range []string{"pragma table_info(item)", "PRAGMA main.table_info = item", "pragma foreign_keys; pragma user_version;", "select 'pragma query_only = 0'"} {
		require.NoError(t, run(text), text)
	}
	for _, text := range []string{
		"pragma query_only = 0; update item set stock = 1 returning stock", "pragma query_only(0)", `pragma "query_only" = 0`, `pragma main."query_only" = 0`,
		"explain pragma query_only = 0", "EXPLAIN QUERY PLAN PRAGMA query_only = 0", "pragma user_version = 5", "pragma main.user_version = 5", "pragma wal_checkpoint", "pragma optimize", "pragma writable_schema = 1",
	} {
		require.ErrorIs(t, run(text), guard.ErrNoFence, text)
	}
	for _, prepare := range []func(string) (*sql.Stmt, error){w.Prepare, readOnly.Prepare} { // SQLite runs some then
		_, err := prepare("pragma query_only = 0")
		require.ErrorIs(t, err, guard.ErrNoFence)
	}
	_, err = readOnly.Exec("update item set stock = 1")
	require.ErrorIs(t, err, guard.ErrNoFence)
	require.Equal(t, 100, db.stock("stock"))
	ctx, _ := db.raised("r", 1, "A")
	_, err = w.ExecContext(ctx, "pragma user_version = 5")
	require.NoError(t, err)
}

// What a server would let through in a read-only transaction, and what would write
// after it.
func TestWrappedReadOnlyTransactionStaysReadOnlyWithoutAFence(t *testing.T) {
	t.Parallel()
	simple := target{"postgres, simple protocol", sqlguard.Postgres, func(t testing.TB) driver.Connector {
		config, err := pgx.ParseConfig(servertest.Postgres(t))
		require.NoError(t, err)
		config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		return stdlib.GetConnector(*config)
	}}
	multi := target{"mariadb, multiStatements", sqlguard.MySQL, func(t testing.TB) driver.Connector {
		return openMariaDB(t, func(c *mysql.Config) { c.MultiStatements = true })
	}}
	const write = "insert into item values ('w', 1)"
	for _, c := range []struct {
		target
		escapes, stays []string
	}{
		{simple, []string{
			"set transaction read write", "SET LOCAL TRANSACTION isolation level serializable, read write", "set transaction_read_only = off",
			"set session transaction_read_only to default", `set local "transaction_read_only" = off`, `set U&"transaction\005fread_only" = off`,
			"reset transaction_read_only", `reset "Transaction_Read_Only"`, "reset U&\"transaction!005fread_only\" uescape '!'",
			"select set_config('transaction_read_only', null, false)", "do $$ begin reset transaction_read_only; end $$",
		}, []string{
			"set transaction isolation level serializable", "set local statement_timeout = 1000", `set search_path = "$user", public`, "reset all",
			"set default_transaction_read_only = off", "set session characteristics as transaction read only", "select set_config('a.b', '1', true)",
			"show transaction_read_only", "explain analyze select 1",
		}},
		{multi, []string{
			"flush status", "analyze table item", "check table item", "set password = ''", "set @a = 1, default role none", "create temporary sequence s",
			"set statement max_statement_time = 1 for flush status", "backup unlock",
		}, []string{"set @a = 1", "set session tx_read_only = 0", "show tables", "checksum table item", "explain update item set stock = 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, c.target)
			wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, patient))
			for _, text := range c.escapes {
				tx, err := wrapped.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
				require.NoError(t, err)
				_, err = tx.Exec(text)
				require.ErrorIs(t, err, guard.ErrNoFence, text)
				require.NoError(t, tx.Rollback())
				_, err = wrapped.Query(text + "; " + write)
				require.Error(t, err, text)
			}
			for _, text := range c.stays {
				tx, err := wrapped.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
				require.NoError(t, err)
				_, err = tx.Exec(text)
				if text[:7] != "explain" { // MariaDB refuses it
					require.NoError(t, err, text)
				}
				_, err = tx.Exec(write)
				require.ErrorIs(t, err, guard.ErrNoFence, text)
				require.NoError(t, tx.Rollback())
				rows, err := wrapped.Query(text)
				require.NoError(t, err, text)
				require.NoError(t, rows.Close())
			}
			require.Empty(t, db.data())
		})
	}
}

// writer is a pgx.QueryRewriter.
type writer struct{}

func (writer) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return "insert into item values ('w', 1) returning stock", nil, nil
}

func TestWrappedStatementIsNotRewrittenAfterwards(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, postgres)
	wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, patient))
	var n int
	require.ErrorContains(t, wrapped.QueryRow("select 1", writer{}).Scan(&n), "rewrites the statement")
	prepared, err := wrapped.Prepare("select 1")
	require.NoError(t, err)
	require.ErrorContains(t, prepared.QueryRow(writer{}).Scan(&n), "rewrites the statement")
	require.NoError(t, prepared.Close())
	require.NoError(t, wrapped.QueryRow("select @n::int", pgx.NamedArgs{"n": 7}).Scan(&n))
	require.Equal(t, 7, n)
	require.Empty(t, db.data())
}

func TestPlainReads(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"select 1",
		"SELECT a FROM t WHERE b = 'insert'",
		"with x as (select 1) select * from x",
		"values (1)",
		"explain select 1",
		"explain update t set a = 1",
		"select replace(a, 'x', 'y'), insert(a, 1, 1, 'y') from t",
		"show transaction_read_only",
	} {
		require.True(t, sqlguard.PlainRead(sqlguard.Postgres, text), text)
	}
	require.True(t, sqlguard.PlainRead(sqlguard.SQLite, "pragma table_info(t)"))
	require.False(t, sqlguard.PlainRead(sqlguard.SQLite, "explain pragma query_only = 0"))
	require.False(t, sqlguard.PlainRead(sqlguard.MySQL, "select 1 /*!999999 ' */; delete from t -- '"))
	for _, text := range []string{
		"insert into t values (1) returning a",
		"with x as (delete from t returning a) select * from x",
		"with x as (merge into t using u on true when matched then do nothing returning a) select * from x",
		"with x as (select 1) insert or replace into t select * from x returning a",
		"select 1; delete from t",
		"select a into u from t",
		"explain analyze update t set a = 1",
		"explain analyze execute p",
		"explain (analyse) create table u as select 1",
		"set transaction read write",
		"call p()",
		"select * from t for update",
		"(select 1)",
		"replace into t values (1)",
	} {
		require.False(t, sqlguard.PlainRead(sqlguard.Postgres, text), text)
	}
}
