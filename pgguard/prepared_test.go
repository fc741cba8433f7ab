package pgguard_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/pgguard"
)

// becomes is a rewriter that makes itself of every statement.
type becomes string

func (b becomes) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(b), nil, nil
}

// everyStatement runs one statement in each way of the guard, and in a transaction
// ahead of another one.
func everyStatement(ctx context.Context, g *pgguard.Guard, sql string, args ...any) map[string]error {
	batch := func() *pgx.Batch {
		b := &pgx.Batch{}
		b.Queue(sql, args...)
		b.Queue("update item set stock = 1")
		return b
	}
	errs := map[string]error{"SendBatch": g.SendBatch(ctx, batch()).Close()}
	_, errs["Exec"] = g.Exec(ctx, sql, args...)
	rows, err := g.Query(ctx, sql, args...)
	rows.Close()
	errs["Query"] = err
	errs["QueryRow"] = g.QueryRow(ctx, sql, args...).Scan()
	errs["SendBatch in InTx"] = g.InTx(ctx, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch()).Close() })
	errs["SendBatch in InTx, later"] = g.InTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select 1"); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch()).Close()
	})
	return errs
}

// Without the refusal each of these writes after the gate has been given up.
func TestWhatAPreparedStatementStandsForIsNotHidden(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		db.must("delete from item")
		db.must("insert into item values ('stock', 100)")
		db.must("create or replace procedure settle() language plpgsql as $$ begin commit; update item set stock = 2; end $$")
		prepared := map[string]string{"settle": "call settle()", "settle now": "call settle()", "item.end": "commit", "fin": "commit", "read": "select stock from item"}
		pool := newPool(t, db.url, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = db.pool.Config().ConnConfig.DefaultQueryExecMode
			c.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
				for name, sql := range prepared {
					if _, err := c.Prepare(ctx, name, sql); err != nil {
						return err
					}
				}
				return nil
			}
		})
		var opts []pgguard.Option
		if db.deferred {
			opts = append(opts, pgguard.WithDeferredBegin())
		}
		g := newGuard(t, pool, opts...)
		for _, sql := range []string{"settle", "settle now", "item.end", "fin", "execute fin", "execute settle", "read"} {
			for name, err := range everyStatement(ctx, g, sql) {
				require.ErrorContains(t, err, "give the text of the statement", "%s: %s", name, sql)
			}
		}
		for _, sql := range []string{"call settle()", "commit"} {
			for name, err := range everyStatement(ctx, g, "select 1", becomes(sql)) {
				if sql == "call settle()" && name != "Exec" && name != "Query" && name != "QueryRow" && name != "SendBatch" {
					require.ErrorContains(t, err, "invalid transaction termination", name) // in a transaction the server refuses it
					continue
				}
				require.ErrorContains(t, err, "end the fenced transaction", "%s: %s", name, sql)
			}
		}
		for _, sql := range []string{"execute fin; update item set stock = 3", "commit; update item set stock = 3"} {
			for _, args := range [][]any{{becomes(sql)}, {pgx.QueryExecModeSimpleProtocol, becomes(sql)}} {
				err := g.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1", args...); return err })
				require.ErrorContains(t, err, "nothing was sent")
				err = g.InTx(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, "select 1", args...).Scan() })
				require.ErrorContains(t, err, "nothing was sent")
			}
			err := g.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sql); return err })
			require.ErrorContains(t, err, "nothing was sent")
		}
		require.Equal(t, 100, db.stock("stock"))

		// A name by itself, in a transaction: nothing follows it unnoticed.
		require.NoError(t, g.InTx(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "read").Scan(new(int))
		}))
		err := g.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "fin")
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "update item set stock = 4")
			return err
		})
		require.ErrorContains(t, err, "has ended the fenced transaction")
		require.Equal(t, 100, db.stock("stock"))
		require.Zero(t, pool.Stat().AcquiredConns())
	})
}

func TestNameThatTheTransactionHasPreparedIsKnown(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Prepare(ctx, "put", "insert into item values ($1, 0)")
		require.NoError(t, err)
		b := &pgx.Batch{}
		b.Queue("put", "a")
		b.Queue("put", "b")
		return tx.SendBatch(ctx, b).Close()
	}))
	require.Equal(t, 2, one[int](db, "select count(*) from item"))
}

// Where a backslash escapes, the server sees another end of '\' than the checks do.
func TestStringsWithBackslashesHideNoCommit(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		const hidden = `select '\' , '; commit; update item set stock = 1; --'`
		ctx, _ := db.raised("r", 1, "A")
		db.must("insert into item values ('stock', 100)")
		pool := newPool(t, db.url, func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["standard_conforming_strings"] = "off"
		})
		var opts []pgguard.Option
		if db.deferred {
			opts = append(opts, pgguard.WithDeferredBegin())
		}
		g := newGuard(t, pool, opts...)
		require.NoError(t, g.Raise(ctx, fence("other", 1, "A")), "which sends no statement of the caller's")
		errs := everyStatement(ctx, g, "select 1")
		errs["InTx"] = g.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, hidden); return err })
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		errs["a batch that begins"] = g.SendBatch(ctx, b).Close()
		for name, err := range errs {
			require.ErrorContains(t, err, "standard_conforming_strings is off", name)
		}
		err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "set local standard_conforming_strings = off")
			require.NoError(t, err)
			_, err = tx.Exec(ctx, hidden)
			return err
		})
		require.ErrorContains(t, err, "standard_conforming_strings is off")
		require.Equal(t, 100, db.stock("stock"))
		require.Zero(t, pool.Stat().AcquiredConns())
	})
}
