package pgguard_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/migrations"
)

func TestFunctionThatEndsItsTransactionIsToldWhatBecameOfIt(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		for name, c := range map[string]struct {
			end     func(tx pgx.Tx) error
			want    string
			written int
		}{
			"commit": {
				func(tx pgx.Tx) error { return tx.Commit(ctx) },
				"pgguard: the function ended the transaction itself (Commit succeeded: it is written); return nil instead of calling Commit: tx is closed", 1,
			},
			"commit and the usual deferred rollback": {
				func(tx pgx.Tx) error { defer func() { _ = tx.Rollback(ctx) }(); return tx.Commit(ctx) },
				"(Commit succeeded: it is written)", 1,
			},
			"rollback": {
				func(tx pgx.Tx) error { return tx.Rollback(ctx) },
				"pgguard: the function ended the transaction itself (Rollback: nothing was written); return an error instead of calling Rollback: tx is closed", 0,
			},
			"a commit that fails, unnoticed": {
				func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "insert into kid values ('k', 'no such item')")
					require.NoError(t, err)
					require.Error(t, tx.Commit(ctx))
					return nil
				},
				"pgguard: the function ended the transaction itself (Commit failed); return its error: ERROR: insert or update on table \"kid\" violates", 0,
			},
		} {
			err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
				require.NoError(t, inserts(ctx, name)(tx))
				return c.end(tx)
			})
			require.ErrorContains(t, err, c.want, name)
			require.NotErrorIs(t, err, guard.ErrCommitUnknown)
			require.Equal(t, c.written, one[int](db, "select count(*) from item where id = $1", name), name)
		}
		// A savepoint may be ended as it likes.
		require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			return nested.Commit(ctx)
		}))
		require.Zero(t, db.pool.Stat().AcquiredConns())
	})
}

func TestTransactionThatSatIdleIsToldSo(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		const want = "nothing was written: it sat idle for longer than it may (5s, or less if the session says so) and was ended by the server; " +
			"keep slow work out of it, or see WithIdleTimeout: "
		sleep := func(tx pgx.Tx) {
			_, err := tx.Exec(ctx, "set local idle_in_transaction_session_timeout = '20ms'")
			require.NoError(t, err)
			pid := tx.Conn().PgConn().PID()
			db.await("select count(*) = 0 from pg_stat_activity where pid = $1", int64(pid))
		}
		for name, call := range map[string]func(tx pgx.Tx) error{
			"commit":   func(pgx.Tx) error { return nil },
			"exec":     func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1"); return err },
			"queryrow": func(tx pgx.Tx) error { return tx.QueryRow(ctx, "select 1").Scan(nil) },
			"begin":    func(tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
			"batch": func(tx pgx.Tx) error {
				b := &pgx.Batch{}
				b.Queue("select 1")
				return tx.SendBatch(ctx, b).Close()
			},
		} {
			id := unique(name)
			err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
				require.NoError(t, inserts(ctx, id)(tx))
				sleep(tx)
				return call(tx)
			})
			require.ErrorContains(t, err, want, name)
			require.Regexp(t, "^pgguard: ", err.Error())
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr, name)
			require.Equal(t, "25P03", pgErr.Code)
			require.Zero(t, one[int](db, "select count(*) from item where id = $1", id), name)
		}
	})
}

// The error of a function may be that of another transaction, elsewhere.
func TestErrorOfTheFunctionIsItsOwn(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		elsewhere := &pgconn.PgError{Code: "25P03"}
		require.Equal(t, elsewhere, db.guard.InTx(ctx, func(pgx.Tx) error { return elsewhere }))
	})
}

func TestS38_RefusedWriteNamesTheFenceThatWasNeeded(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		up, down, err := migrations.Protect("stock", migrations.ProtectOptions{Trigger: true, NoColumn: true, Resource: "'stock:' || sku"})
		require.NoError(t, err)
		db.must("create table stock (sku text)")
		_, err = db.pool.Exec(t.Context(), up, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		defer db.must("drop table stock")
		defer func() { _, _ = db.pool.Exec(t.Context(), down, pgx.QueryExecModeSimpleProtocol) }()
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		_, err = db.guard.Exec(ctx, "insert into stock values ('a')")
		require.ErrorIs(t, err, guard.ErrNoFence)
		require.EqualError(t, err, `pgguard: INSERT of public.stock refused: no fence for that row; entered were "`+resource+`", the row needs 'stock:' || sku`)
		_, err = db.guard.Exec(ctx, "truncate stock")
		require.ErrorIs(t, err, guard.ErrNoFence)
		require.EqualError(t, err, `pgguard: TRUNCATE of public.stock: always refused where rows have their own fences, no fence is enough; use DELETE`)
		_, err = db.pool.Exec(t.Context(), "insert into stock values ('a')")
		require.ErrorContains(t, err, "ERROR: fencing: INSERT of public.stock refused: the transaction has not entered the fence that the row needs ('stock:' || sku); write through a guard (SQLSTATE UF004)")
	})
}
