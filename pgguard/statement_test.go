package pgguard_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

// A deferred constraint fails when the implicit transaction commits, after the
// statement has succeeded.
func TestFailureToCommitASingleStatementIsReported(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		id := unique("k")
		const insert = "insert into kid values ($1, 'no such item') returning id"
		batch := func() *pgx.Batch {
			b := &pgx.Batch{}
			b.Queue(insert, id)
			return b
		}
		for name, call := range map[string]func() error{
			"Exec": func() error { _, err := db.guard.Exec(ctx, insert, id); return err },
			"Query": func() error {
				rows, err := db.guard.Query(ctx, insert, id)
				if err != nil {
					return err
				}
				_, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			},
			"Query closed early": func() error {
				rows, err := db.guard.Query(ctx, insert, id)
				if err != nil {
					return err
				}
				rows.Close()
				return rows.Err()
			},
			"QueryRow":  func() error { var got string; return db.guard.QueryRow(ctx, insert, id).Scan(&got) },
			"SendBatch": func() error { return db.guard.SendBatch(ctx, batch()).Close() },
			"SendBatch read by hand": func() error {
				results := db.guard.SendBatch(ctx, batch())
				_, _ = results.Exec()
				return results.Close()
			},
		} {
			err := call()
			require.ErrorContains(t, err, "23503", name)
			require.NotErrorIs(t, err, guard.ErrCommitUnknown, name)
		}
		require.Zero(t, one[int](db, "select count(*) from kid where id = $1", id))
		require.Zero(t, db.pool.Stat().AcquiredConns())
	})
}

func TestArgumentsOfASingleStatement(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, f := db.raised(unique("r"), 1<<60+1, "A")
		id := unique("i")
		_, err := db.guard.Exec(ctx, "insert into item values (@id, @stock)", pgx.NamedArgs{"id": id, "stock": 7})
		require.NoError(t, err)
		_, err = db.guard.Exec(ctx, "update item set fence_token = $1 where id = $2", f.Token, id)
		require.NoError(t, err, "a token is a bigint")
		var token guard.Token
		require.NoError(t, db.guard.QueryRow(ctx, "select fence_token from item where id = @id", pgx.StrictNamedArgs{"id": id}).Scan(&token))
		require.Equal(t, f.Token, token)
		b := &pgx.Batch{}
		b.Queue("update item set stock = @stock where id = @id", pgx.NamedArgs{"id": id, "stock": 8})
		require.NoError(t, db.guard.SendBatch(ctx, b).Close())
		require.Equal(t, 8, db.stock(id))

		for _, option := range []any{pgx.QueryExecModeExec, pgx.QueryResultFormats{1}, pgx.QueryResultFormatsByOID{23: 1}} {
			for _, args := range [][]any{{option, 1}, {pgx.NamedArgs{}, option}} {
				_, err := db.guard.Exec(ctx, "select $1::int", args...)
				require.ErrorContains(t, err, "not supported")
				require.ErrorContains(t, db.guard.QueryRow(ctx, "select $1::int", args...).Scan(new(int)), "not supported")
				b := &pgx.Batch{}
				b.Queue("select $1::int", args...)
				require.ErrorContains(t, db.guard.SendBatch(ctx, b).Close(), "not supported")
			}
			// In a fenced transaction they work as ever.
			require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, "select $1::int", option, 1).Scan(new(int))
			}))
		}
		require.Zero(t, db.pool.Stat().AcquiredConns())
	})
}

// Without the refusal each of these would write, or let the next statement write,
// after the gate has been given up.
func TestStatementsThatWouldLeaveTheImplicitTransaction(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		id := unique("i")
		db.must("insert into item values ($1, 0)", id)
		db.must("create or replace procedure leave(i text) language plpgsql as $$ begin commit; update item set stock = 1 where id = i; end $$")
		for _, sql := range []string{
			"commit", "Begin", "start transaction", "rollback", "/**/end", "abort", "prepare transaction 'p'",
			"call leave('" + id + "')", "do $$ begin commit; update item set stock = 1; end $$",
			"copy item to stdout", "copy item from stdin",
			"select 1; commit", "select 1; select 2", "", " -- nothing", ";",
		} {
			_, err := db.guard.Exec(ctx, sql)
			require.ErrorContains(t, err, "nothing was sent", sql)
			rows, err := db.guard.Query(ctx, sql)
			require.ErrorContains(t, err, "nothing was sent", sql)
			rows.Close()
			require.ErrorContains(t, db.guard.QueryRow(ctx, sql).Scan(), "nothing was sent", sql)
			b := &pgx.Batch{}
			b.Queue(sql)
			b.Queue("update item set stock = 1 where id = $1", id)
			require.ErrorContains(t, db.guard.SendBatch(ctx, b).Close(), "nothing was sent", sql)
			require.Zero(t, db.stock(id), sql)
		}
		// What the server refuses by itself.
		for _, sql := range []string{"savepoint s", "vacuum item", "discard all"} {
			_, err := db.guard.Exec(ctx, sql)
			require.Error(t, err, sql)
		}
		// In a transaction that the batch begins, a procedure cannot commit.
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue("call leave($1)", id)
		results := db.guard.SendBatch(ctx, b)
		require.ErrorContains(t, results.Close(), "invalid transaction termination")
		require.NoError(t, results.Tx().Rollback(ctx))
		b = &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue("commit")
		results = db.guard.SendBatch(ctx, b)
		require.ErrorContains(t, results.Close(), "end the fenced transaction")
		require.ErrorIs(t, results.Tx().Rollback(ctx), pgx.ErrTxClosed)
		require.ErrorIs(t, results.Tx().Commit(ctx), pgx.ErrTxClosed)
		require.Zero(t, db.stock(id))
		require.Zero(t, db.pool.Stat().AcquiredConns())
		require.Zero(t, one[int](db, "select count(*)"+gateLocks, resource))
	})
}
