package pgguard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// What a transaction says to each first call, to the call after it and to Commit,
// and what is in the table then, does not depend on when it begins.
func TestDeferredTransactionAnswersAsOneThatHasBegun(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		deferred := db.in(t, db.pool.Config().ConnConfig.DefaultQueryExecMode, true)
		answers := func(g *pgguard.Guard, ctx context.Context, call func(context.Context, pgx.Tx) (any, error)) (out []any) {
			t.Helper()
			db.must("drop table if exists made")
			db.must("delete from item")
			db.must("insert into item values ('x', 100)")
			tx, err := g.BeginTx(ctx, pgx.TxOptions{})
			require.NoError(t, err)
			say := func(what any, err error) {
				var pgErr *pgconn.PgError
				if errors.As(err, &pgErr) {
					require.NotEqual(t, "26000", pgErr.Code, "a prepared statement is missing")
					out = append(out, what, pgErr.Code, pgErr.Message, pgErr.Position)
				}
				text := strings.Replace(fmt.Sprint(err), "failed to deallocate cached statement(s): ", "", 1)
				if i := strings.Index(text, "0x"); i >= 0 {
					text = text[:i] // an address
				}
				out = append(out, what, text)
			}
			say(call(ctx, tx))
			var held string
			err = tx.QueryRow(ctx, "select coalesce(current_setting('fencing.held', true), '')").Scan(&held)
			say(held, err)
			say(nil, tx.Commit(ctx))
			say(nil, tx.Commit(ctx))
			say(nil, tx.Rollback(ctx))
			return append(out, one[*string](db, "select string_agg(id || stock, ',' order by id) from item"))
		}
		for name, first := range firsts {
			ctx, _ := db.raised(unique("r"), 1, "A")
			want := answers(db.guard, ctx, first.call)
			require.Equal(t, want, answers(deferred.guard, ctx, first.call), name)
			require.Equal(t, want, answers(deferred.guard, ctx, first.call), "%s, prepared", name)
			requireIdle(t, deferred.pool)
		}
	})
}

func TestFirstStatementCarriesBeginAndEnter(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.must("insert into item values ('x', 100)")
	plain, _ := db.raised(unique("r"), 1, "A")
	several, _ := db.raised(unique("s"), 1, "A")
	several = guard.NewContext(plain, guard.Fences(several)...)
	for _, mode := range modes {
		trips := &tripCounter{}
		pool := newPool(t, db.url, trips.count, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = mode
			c.MaxConns = 1
		})
		g := newGuard(t, pool, pgguard.WithDeferredBegin())
		require.NoError(t, g.InTx(plain, nothing)) // checks the schema
		trips.reset()
		statement, run := 1, 1 // round trips of a statement, and to begin
		if mode == pgx.QueryExecModeDescribeExec {
			statement, run = 2, 2
		}
		for name, first := range firsts {
			if !first.carries || mode == pgx.QueryExecModeSimpleProtocol {
				continue
			}
			for _, ctx := range []context.Context{plain, several} {
				for _, o := range []pgx.TxOptions{{}, {IsoLevel: pgx.Serializable}, {AccessMode: pgx.ReadOnly}} {
					for last := range 2 {
						tx, err := g.BeginTx(ctx, o)
						require.NoError(t, err)
						require.Zero(t, trips.reset(), "BeginTx sends nothing")
						_, err = first.call(ctx, tx)
						if n := trips.reset(); last == 1 && err == nil { // the first time and after an error it prepares
							require.Equal(t, statement, n, "%s in mode %v", name, mode)
						}
						require.NoError(t, tx.Rollback(ctx))
						trips.reset()
					}
				}
			}
		}

		// Against pgx without a guard.
		update := func(tx pgx.Tx) error {
			_, err := tx.Exec(plain, "update item set stock = $1 where id = 'x'", 7)
			return err
		}
		require.NoError(t, g.InTx(plain, update))
		require.NoError(t, pgx.BeginFunc(plain, pool, update))
		trips.reset()
		require.NoError(t, g.InTx(plain, update))
		guarded := trips.reset()
		require.NoError(t, pgx.BeginFunc(plain, pool, update))
		unguarded := trips.reset()
		if mode == pgx.QueryExecModeSimpleProtocol {
			require.Equal(t, unguarded, guarded, "it carries nothing")
		} else {
			require.Equal(t, statement+1, guarded, "the statement and COMMIT")
			require.Equal(t, unguarded-1, guarded)
		}
		require.NoError(t, g.InTx(plain, nothing))
		require.Equal(t, run+1, trips.reset(), "without a statement it begins and commits")

		// A statement that fails is forgotten by pgx, and no other.
		if mode == pgx.QueryExecModeCacheStatement {
			require.Error(t, g.InTx(plain, inserts(plain, "x")))
			trips.reset()
			require.NoError(t, g.InTx(plain, update))
			require.Equal(t, 3, trips.reset(), "the failed statement is deallocated first")
			require.NoError(t, g.InTx(plain, update))
			require.Equal(t, 2, trips.reset())
		}

		// Nor does pgx prepare what it sends without arguments, literals and all.
		require.NoError(t, g.InTx(plain, func(tx pgx.Tx) error {
			_, err := tx.Exec(plain, "update item set stock = 8 where id = 'x'")
			return err
		}))
		var prepared int
		require.NoError(t, pool.QueryRow(plain, "select count(*) from pg_prepared_statements where statement like 'update item set stock = 8%'").Scan(&prepared))
		require.Zero(t, prepared)
		trips.reset()

		tx, err := g.Begin(plain)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(plain))
		require.ErrorIs(t, tx.Rollback(plain), pgx.ErrTxClosed)
		require.ErrorIs(t, tx.Commit(plain), pgx.ErrTxClosed)
		_, err = tx.Exec(plain, "select $1::int", 1)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.Zero(t, trips.reset(), "nothing to roll back")
		requireIdle(t, pool)
	}
}
