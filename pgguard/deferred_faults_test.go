package pgguard_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// The refusal comes out of the first call and of all later ones, whatever the
// function makes of it, and the observer is told once.
func TestDeferredRefusalIsNotToBeSwallowed(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		var r recorder
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin(), pgguard.WithObserver(r.observe))
		resource := unique("r")
		aCtx, a := db.raised(resource, 33, "A")
		_, b := db.raised(resource, 34, "B")
		several, _ := db.raised(unique("s"), 1, "A")
		several = guard.NewContext(several, a)
		db.must("delete from item")
		db.must("insert into item values ('x', 100)")
		own := errors.New("the function's own")
		for name, first := range firsts {
			quiet := name == "Exec, commit" || name == "LargeObjects" || name == "Conn" // its own error is not the refusal
			for _, ctx := range []context.Context{aCtx, several} {
				for how, c := range map[string]struct {
					returns func(err error) error
					also    error // that InTx returns
					needs   bool  // the refusal as the error
				}{
					"returned":       {func(err error) error { return err }, nil, true},
					"wrapped":        {func(err error) error { return fmt.Errorf("%w: %w", own, err) }, own, true},
					"hidden":         {func(error) error { return own }, own, false},
					"swallowed":      {func(error) error { return nil }, nil, false},
					"taken apart":    {func(err error) error { var p *pgconn.PgError; errors.As(err, &p); return p }, nil, true},
					"as it is meant": {func(err error) error { var s *guard.StaleError; errors.As(err, &s); return s }, nil, true},
				} {
					if quiet && c.needs || len(guard.Fences(ctx)) > 1 && how != "hidden" {
						continue
					}
					err := g.InTx(ctx, func(tx pgx.Tx) error {
						_, err := first.call(ctx, tx)
						require.Error(t, err, name)
						_, later := tx.Exec(ctx, "update item set stock = 0 where id = $1", "x")
						requireStale(t, later, a, b)
						requireStale(t, tx.QueryRow(ctx, "select 1").Scan(nil), a, b)
						if !quiet {
							require.ErrorIs(t, err, later, name)
						}
						return c.returns(err)
					})
					requireStale(t, err, a, b)
					if c.also != nil {
						require.ErrorIs(t, err, c.also, name)
					}
					events := r.take()
					require.Len(t, events, 1, "%s, %s", name, how)
					require.Equal(t, guard.EventRefused, events[0].Kind)
					require.ErrorIs(t, events[0].Err, guard.ErrStale)
				}
			}
		}
		requireIdle(t, db.pool)

		// The function ends the transaction itself.
		for name, end := range map[string]func(tx pgx.Tx) error{
			"commit":   func(tx pgx.Tx) error { requireStale(t, tx.Commit(aCtx), a, b); return nil },
			"rollback": func(tx pgx.Tx) error { return tx.Rollback(aCtx) },
		} {
			err := g.InTx(aCtx, func(tx pgx.Tx) error {
				_, err := tx.Exec(aCtx, "update item set stock = $1", 0)
				requireStale(t, err, a, b)
				err = end(tx)
				_, later := tx.Exec(aCtx, "update item set stock = $1", 0)
				require.ErrorIs(t, later, pgx.ErrTxClosed, name)
				return err
			})
			requireStale(t, err, a, b)
			require.Len(t, r.take(), 1, name)
		}
		require.Equal(t, 100, db.stock("x"))
		require.NoError(t, guardOnly(db, resource))
	})
}

// requireIdle waits until the pool has no connection in use. It counts one that is
// being closed.
func requireIdle(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond)
}

// guardOnly checks that nothing of a transaction is left.
func guardOnly(db *database, resource string) error {
	if n := db.pool.Stat().AcquiredConns(); n != 0 {
		return fmt.Errorf("%d connections are in use", n)
	}
	if n := one[int](db, "select count(*)"+gateLocks, resource); n != 0 {
		return fmt.Errorf("the gate is held %d times", n)
	}
	return nil
}

// What a transaction that could not be entered hands out for use by hand writes
// nothing.
func TestConnectionOfARefusedTransactionWritesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin())
		resource := unique("r")
		aCtx, _ := db.raised(resource, 33, "A")
		require.NoError(t, g.InTx(aCtx, nothing))
		db.raised(resource, 34, "B")
		err := g.InTx(aCtx, func(tx pgx.Tx) error {
			_, err := tx.Conn().Exec(t.Context(), "insert into item values ('by hand', 1)")
			require.ErrorContains(t, err, "25P02", "the transaction is aborted")
			objects := tx.LargeObjects()
			_, err = objects.Create(t.Context(), 0)
			require.Error(t, err)
			return nil
		})
		require.ErrorIs(t, err, guard.ErrStale)

		// It could not even be begun.
		db.must("alter schema fencing rename to elsewhere")
		defer db.must("alter schema elsewhere rename to fencing")
		err = g.InTx(aCtx, func(tx pgx.Tx) error {
			_, err := tx.Conn().Exec(t.Context(), "insert into item values ('by hand', 1)")
			require.Error(t, err)
			return nil
		})
		require.ErrorIs(t, err, pgguard.ErrSchema)
		require.Zero(t, one[int](db, "select count(*) from item"))
		requireIdle(t, db.pool)
	})
}

// As long as it has not begun a transaction is none: no raise waits for it.
func TestTransactionThatHasNotBegunDelaysNoRaise(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, pgguard.WithDeferredBegin())
	aCtx, a := db.raised("r", 33, "A")
	tx, err := db.guard.Begin(aCtx)
	require.NoError(t, err)
	_, b := db.raised("r", 34, "B")
	_, err = tx.Exec(aCtx, "insert into item values ($1, 1)", "late")
	requireStale(t, err, a, b)
	dead, cancel := context.WithCancel(aCtx)
	cancel()
	requireStale(t, tx.Commit(dead), a, b)
	require.NoError(t, guardOnly(db, "r"))
	require.Zero(t, one[int](db, "select count(*) from item"))
}

func TestRowsOfACarriedQuery(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		id := unique("i")
		const sql = "insert into item select $1 || x, x from generate_series(1, 3) x returning stock"

		// Closed early, read to the end, and closed twice: the transaction goes on.
		require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, sql, id)
			require.NoError(t, err)
			require.True(t, rows.Next())
			rows.Close()
			rows.Close()
			require.NoError(t, rows.Err())
			require.Equal(t, "INSERT 0 3", rows.CommandTag().String())
			require.NotNil(t, rows.Conn())
			_, err = tx.Exec(ctx, "select $1::int", 1)
			return err
		}))
		require.Equal(t, 3, one[int](db, "select count(*) from item where id like $1 || '%'", id))

		// Never closed: it cannot be committed, nor is the connection fit for another.
		for name, leave := range map[string]func(pgx.Tx){
			"Query":    func(tx pgx.Tx) { _, _ = tx.Query(ctx, sql, unique("never")) },
			"QueryRow": func(tx pgx.Tx) { _ = tx.QueryRow(ctx, sql, unique("never")) },
			"SendBatch": func(tx pgx.Tx) {
				b := &pgx.Batch{}
				b.Queue(sql, unique("never"))
				_ = tx.SendBatch(ctx, b)
			},
		} {
			err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
				leave(tx)
				_, err := tx.Exec(ctx, "select $1::int", 1)
				require.ErrorContains(t, err, "conn busy", name)
				return nil
			})
			require.ErrorContains(t, err, "not sent, the transaction was rolled back, nothing was written", name)
			require.ErrorContains(t, err, "conn busy", name)
			boom := errors.New("boom")
			require.Equal(t, boom, db.guard.InTx(ctx, func(tx pgx.Tx) error { leave(tx); return boom }))
			require.PanicsWithValue(t, "boom", func() {
				_ = db.guard.InTx(ctx, func(tx pgx.Tx) error { leave(tx); panic("boom") })
			})
		}
		require.Panics(t, func() {
			_ = db.guard.InTx(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql, unique("never")).Scan(panicker{}) })
		})
		require.Zero(t, one[int](db, "select count(*) from item where id like 'never%'"))
		require.NoError(t, db.guard.InTx(ctx, inserts(ctx, unique("good"))))
		db.await("select count(*) = 0"+gateLocks, resource) // the server may see late that a client is gone
		requireIdle(t, db.pool)
	})
}

func TestDeferredTransactionWhoseContextOrConnectionDies(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		mode := db.pool.Config().ConnConfig.DefaultQueryExecMode
		pool := newPool(t, db.url, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = mode
			c.MaxConns = 1
		})
		g := newGuard(t, pool, pgguard.WithDeferredBegin())
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		works := func() {
			t.Helper()
			id := unique("good")
			require.NoError(t, g.InTx(ctx, inserts(ctx, id)))
			require.Equal(t, 100, db.stock(id))
			requireIdle(t, pool)
		}
		works()
		dead, cancel := context.WithCancel(ctx)
		cancel()
		lost := errors.New("the lease was lost")

		// A statement on a dead context is not sent, and the transaction goes on.
		id := unique("i")
		require.NoError(t, g.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(dead, "insert into item values ($1, 0)", id)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, tx.QueryRow(dead, "select 1").Scan(nil), context.Canceled)
			b := &pgx.Batch{}
			b.Queue("select 1")
			require.ErrorIs(t, tx.SendBatch(dead, b).Close(), context.Canceled)
			return inserts(ctx, id)(tx)
		}))
		require.Equal(t, 100, db.stock(id))
		require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "it cost no connection")

		// The context ends before the first statement.
		dying, lose := context.WithCancelCause(ctx)
		err := g.InTx(dying, func(tx pgx.Tx) error { lose(lost); return inserts(dying, "never")(tx) })
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, lost)
		dying, lose = context.WithCancelCause(ctx)
		err = g.InTx(dying, func(tx pgx.Tx) error { lose(lost); return nil })
		require.ErrorIs(t, err, lost)
		require.ErrorContains(t, err, "rolled back")
		works()

		// It ends while the first statement runs, or while that waits to enter.
		for name, sql := range map[string]string{"runs": "insert into item select 'never', 1 from pg_sleep($1)", "waits": "insert into item values ('never', $1)"} {
			wait := "select count(*) > 0 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
			args, release := []any{}, func() {}
			if name == "waits" {
				raiser, err := db.pool.Begin(ctx)
				require.NoError(t, err)
				_, err = raiser.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended($1, 5070437))", resource)
				require.NoError(t, err)
				release = func() { require.NoError(t, raiser.Rollback(ctx)) }
				wait, args = "select count(*) > 0"+gateLocks+" and not l.granted", []any{resource}
			}
			dying, lose := context.WithCancelCause(ctx)
			result := background(t, func() error {
				return g.InTx(dying, func(tx pgx.Tx) error {
					_, err := tx.Exec(dying, sql, 60)
					if err == nil {
						return errors.New("it ran to its end")
					}
					_, later := tx.Exec(ctx, "insert into item values ($1, 1)", "never")
					if later == nil {
						return errors.New("another statement ran")
					}
					return err
				})
			})
			db.await(wait, args...)
			lose(lost)
			err := result()
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, guard.ErrCommitUnknown, name)
			release()
			works()
		}

		// The connection dies before the first statement.
		for _, returns := range []error{nil, lost} {
			err = g.InTx(ctx, func(tx pgx.Tx) error {
				db.must("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
				err := inserts(ctx, "never")(tx)
				if mode == pgx.QueryExecModeDescribeExec {
					require.NoError(t, err, "it is noticed before BEGIN is sent, and another connection taken")
					return lost
				}
				require.Error(t, err)
				require.Error(t, inserts(ctx, "never")(tx))
				return returns
			})
			require.Error(t, err)
			require.NotErrorIs(t, err, guard.ErrCommitUnknown)
			if returns != nil {
				require.ErrorIs(t, err, returns)
			}
			db.pool.Reset()
			works()
		}
		require.Zero(t, one[int](db, "select count(*) from item where id = 'never'"))
	})
}

func TestS23_LostReplyOfACarriedStatement(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.deferred = true
	ctx, _ := db.raised("r", 1, "A")
	p := newProxy(t, db.url)
	g := db.behindProxy(t, p, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	for _, f := range []fault{loseReply, loseRequest} {
		p.failOn("insert into item", f, nil)
		err := g.InTx(ctx, inserts(ctx, "x"))
		require.Error(t, err)
		require.NotErrorIs(t, err, guard.ErrCommitUnknown, "without COMMIT nothing is written")
		db.await("select count(*) = 0"+gateLocks, "r")
		require.Zero(t, one[int](db, "select count(*) from item"))
	}
	require.Equal(t, 2, p.faults())
	require.NoError(t, g.InTx(ctx, inserts(ctx, "x")))
}

func TestDeferredTransactionThatIsLeftBeforeItsFirstStatement(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, pgguard.WithDeferredBegin())
	ctx, _ := db.raised("r", 1, "A")
	boom := errors.New("boom")
	require.Equal(t, boom, db.guard.InTx(ctx, func(pgx.Tx) error { return boom }))
	require.PanicsWithValue(t, "boom", func() { _ = db.guard.InTx(ctx, func(pgx.Tx) error { panic("boom") }) })
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = db.guard.InTx(ctx, func(pgx.Tx) error { runtime.Goexit(); return nil })
	}()
	<-left
	// An argument of the caller's that panics when it is encoded.
	require.PanicsWithValue(t, "a valuer of the caller", func() {
		_ = db.guard.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into item values ($1, 1)", valuer{})
			return err
		})
	})
	require.NoError(t, db.guard.InTx(ctx, inserts(ctx, "good")))
	require.Equal(t, []string{"good"}, one[[]string](db, "select array_agg(id) from item"))
	require.NoError(t, guardOnly(db, "r"))
}
