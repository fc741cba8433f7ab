package pgguard_test

import (
	"context"
	"errors"
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

// prepared returns a pool like the database's with statements that each connection has
// prepared, by their names.
func (db *database) prepared(t *testing.T, statements map[string]string) *pgxpool.Pool {
	return newPool(t, db.url, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = db.pool.Config().ConnConfig.DefaultQueryExecMode
		c.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			for name, sql := range statements {
				if _, err := c.Prepare(ctx, name, sql); err != nil {
					return err
				}
			}
			return nil
		}
	})
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
		pool := db.prepared(t, map[string]string{"settle": "call settle()", "settle now": "call settle()", "item.end": "commit", "fin": "commit", "read": "select stock from item"})
		g := db.newGuard(pool)
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

// After COMMIT AND CHAIN the session is in a transaction as before, but not in the one
// that has entered the fence. B raises, writes, and A goes on.
func TestNameThatChainsTransactionsIsNoticed(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		db.must("delete from item")
		db.must("insert into item values ('stock', 1)")
		pool := db.prepared(t, map[string]string{"chain": "commit and chain", "drop": "rollback and chain", "again": "execute chain", "read": "select stock from item"})
		g := db.newGuard(pool)
		calls := map[string]func(context.Context, pgx.Tx, string) error{
			"Exec":     func(ctx context.Context, tx pgx.Tx, sql string) error { _, err := tx.Exec(ctx, sql); return err },
			"QueryRow": func(ctx context.Context, tx pgx.Tx, sql string) error { return tx.QueryRow(ctx, sql).Scan() },
			"Query": func(ctx context.Context, tx pgx.Tx, sql string) error {
				rows, err := tx.Query(ctx, sql)
				rows.Close()
				return err
			},
			"Exec of a rewriter": func(ctx context.Context, tx pgx.Tx, sql string) error {
				_, err := tx.Exec(ctx, "select 1", becomes(sql))
				return err
			},
		}
		for _, sql := range []string{"chain", "drop", "again", "execute chain", "execute drop"} {
			// Any error but this says that nothing was run.
			ignored := func(err error) error {
				if errors.Is(err, pgx.ErrNoRows) {
					return nil
				}
				return err
			}
			for name, call := range calls {
				resource := unique("r")
				ctx, _ := db.raised(resource, 1, "A")
				err := g.InTx(ctx, func(tx pgx.Tx) error {
					if err := ignored(call(ctx, tx, sql)); err != nil {
						return err
					}
					require.NoError(t, g.Raise(t.Context(), fence(resource, 2, "B")))
					_, err := tx.Exec(ctx, "update item set stock = 7")
					return err
				})
				require.Error(t, err, "%s: %s", name, sql)
				require.Equal(t, 1, db.stock("stock"), "%s: %s", name, sql)
				ctx, _ = db.raised(unique("r"), 1, "A")
				err = g.InTx(ctx, func(tx pgx.Tx) error { return ignored(call(ctx, tx, sql)) })
				require.Error(t, err, "%s at the end: %s", name, sql)
				err = g.Once(ctx, unique("o"), func(tx pgx.Tx) error { return ignored(call(ctx, tx, sql)) })
				require.Error(t, err, "%s in Once: %s", name, sql)
			}
		}
		ctx, _ := db.raised(unique("r"), 1, "A")
		require.NoError(t, g.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "savepoint s; rollback to s", pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "rollback to s")
			return err
		}), "which the server calls ROLLBACK too")
		require.Zero(t, pool.Stat().AcquiredConns())
	})
}

// A batch knows no name as a command: neither a blank one nor one of EXECUTE.
func TestNamesThatHideACommitInABatch(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		db.must("delete from item")
		db.must("insert into item values ('stock', 1)")
		names := map[string]string{" ": "commit", ";": "commit", "-- fin": "commit", "fin": "commit"}
		pool := db.prepared(t, names)
		g := db.newGuard(pool)
		ctx, _ := db.raised(unique("r"), 1, "A")
		before := func(tx pgx.Tx, name string) error {
			b := &pgx.Batch{}
			b.Queue(name)
			b.Queue("update item set stock = 7")
			return tx.SendBatch(ctx, b).Close()
		}
		for name := range names {
			err := g.InTx(ctx, func(tx pgx.Tx) error { return before(tx, name) })
			require.ErrorContains(t, err, "give the text of the statement", "%q", name)
		}
		err := g.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Prepare(ctx, "mine", "execute fin")
			require.NoError(t, err)
			return before(tx, "mine")
		})
		require.ErrorContains(t, err, "give the text of the statement")
		err = g.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Prepare(ctx, "commit", "select 1")
			require.NoError(t, err)
			return before(tx, "commit")
		})
		require.ErrorContains(t, err, "would end the fenced transaction")
		require.Equal(t, 1, db.stock("stock"))
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
		g := db.newGuard(pool)
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

// To the server the two bytes of E'\x83\x5c' are one character, and no backslash escapes.
func TestEncodingsWithBackslashesHideNoCommit(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		const hidden = "select E'\x83\x5c'; commit; update item set stock = 1; --'"
		db.must("insert into item values ('stock', 100)")
		ctx, _ := db.raised("r", 1, "A")
		writes := func(tx pgx.Tx) error { _, err := tx.Exec(ctx, hidden); return err }
		for _, encoding := range []string{"BIG5", "GB18030", "GBK", "JOHAB", "SHIFT_JIS_2004", "sjis", "uhc"} {
			pool := newPool(t, db.url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = encoding })
			g := db.newGuard(pool)
			errs := everyStatement(ctx, g, "select 1")
			errs["InTx"] = g.InTx(ctx, writes)
			errs["InTx, later"] = db.guard.InTx(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "set local client_encoding = "+encoding)
				require.NoError(t, err)
				return writes(tx)
			})
			for name, err := range errs {
				require.ErrorContains(t, err, "client_encoding is ", "%s: %s", encoding, name)
			}
		}
		pool := newPool(t, db.url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = "EUC_JP" })
		require.NoError(t, db.newGuard(pool).InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1"); return err }))
		require.Equal(t, 100, db.stock("stock"))
	})
}
