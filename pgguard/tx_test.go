package pgguard_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

func nothing(pgx.Tx) error { return nil }

// inserts returns a function for InTx that inserts one item.
func inserts(ctx context.Context, id string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into item values ($1, 100)", id)
		return err
	}
}

func TestInTxCommitsUnderTheCurrentFenceOnly(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		resource := unique("r")
		require.ErrorIs(t, db.guard.InTx(t.Context(), nil), guard.ErrNoFence)

		a := fence(resource, 33, "A")
		aCtx := guard.NewContext(t.Context(), a)
		err := db.guard.InTx(aCtx, db.unreached())
		require.ErrorIs(t, err, guard.ErrNotRaised)
		var absent *guard.NotRaisedError
		require.ErrorAs(t, err, &absent)
		require.Equal(t, &guard.NotRaisedError{Held: a}, absent)

		require.NoError(t, db.guard.Raise(t.Context(), a))
		require.NoError(t, db.guard.InTx(aCtx, inserts(aCtx, resource)))
		require.Equal(t, 100, db.stock(resource))

		bCtx, b := db.raised(resource, 34, "B")
		requireStale(t, db.guard.InTx(aCtx, db.unreached()), a, b)
		ahead := guard.NewContext(t.Context(), fence(resource, 35, "C"))
		err = db.guard.InTx(ahead, db.unreached())
		require.ErrorIs(t, err, guard.ErrNotRaised)
		require.ErrorAs(t, err, &absent)
		require.EqualValues(t, 34, absent.Current.Token)

		// The fence of another resource is none for this one: the trigger sees to it.
		err = db.guard.InTx(bCtx, func(tx pgx.Tx) error {
			_, err := tx.Exec(bCtx, "insert into guarded values ($1, 'some other resource')", resource)
			return err
		})
		require.ErrorIs(t, err, guard.ErrNoFence)
		require.ErrorContains(t, err, resource)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "UF004", pgErr.Code)
	})
}

func TestBeginAndEnterTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	trips := &tripCounter{}
	g := newGuard(t, newPool(t, db.url, trips.count))
	ctx, _ := db.raised("r", 1, "A")
	several, _ := db.raised("s", 1, "A")
	several = guard.NewContext(several, guard.Fences(ctx)...)
	for name, ctx := range map[string]context.Context{"one fence": ctx, "two": several} {
		for _, o := range []pgx.TxOptions{{}, {IsoLevel: pgx.Serializable}, {AccessMode: pgx.ReadOnly}} {
			require.NoError(t, g.InTxOptions(ctx, o, nothing)) // checks the schema and prepares
			trips.reset()
			tx, err := g.BeginTx(ctx, o)
			require.NoError(t, err)
			require.Equal(t, 1, trips.reset(), name)
			require.NoError(t, tx.Commit(ctx))
			require.Equal(t, 1, trips.reset(), name)
		}
	}
}

func TestFencedTransactionEndsHoweverItsFunctionIsLeft(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		pool := newPool(t, db.url, func(c *pgxpool.Config) { c.MaxConns = 1 })
		g := db.newGuard(pool)
		ctx, _ := db.raised("r", 1, "A")
		boom := errors.New("boom")

		err := g.InTx(ctx, func(tx pgx.Tx) error {
			require.NoError(t, inserts(ctx, "error")(tx))
			return boom
		})
		require.Equal(t, boom, err, "the function's error comes back as it is")

		require.PanicsWithValue(t, "boom", func() {
			_ = g.InTx(ctx, func(tx pgx.Tx) error {
				require.NoError(t, inserts(ctx, "panic")(tx))
				panic("boom")
			})
		})

		left := make(chan struct{})
		go func() {
			defer close(left)
			_ = g.InTx(ctx, func(tx pgx.Tx) error {
				_ = inserts(ctx, "goexit")(tx)
				runtime.Goexit()
				return nil
			})
		}()
		<-left

		dying, cancel := context.WithCancel(ctx)
		err = g.InTx(dying, func(tx pgx.Tx) error {
			require.NoError(t, inserts(ctx, "cancelled")(tx))
			cancel()
			return boom
		})
		require.Equal(t, boom, err, "the rollback does not depend on the context")

		dying, cancel = context.WithCancel(ctx)
		err = g.InTx(dying, func(tx pgx.Tx) error {
			require.NoError(t, inserts(ctx, "cancelled")(tx))
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "rolled back")
		require.NotErrorIs(t, err, guard.ErrCommitUnknown)

		err = g.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 1/0")
			require.Error(t, err)
			return nil
		})
		require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
		require.ErrorContains(t, err, "nothing was written: a statement had failed; return its error")

		// The only connection of the pool is free again, and in no transaction.
		require.NoError(t, g.InTx(ctx, inserts(ctx, "good")))
		require.Equal(t, []string{"good"}, one[[]string](db, "select array_agg(id) from item"))
		require.Zero(t, one[int](db, "select count(*)"+gateLocks, "r"))
		require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "not even the connection was lost")
	})
}

func TestOptionsOfATransaction(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		for _, level := range []pgx.TxIsoLevel{"", pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted} {
			for _, access := range []pgx.TxAccessMode{"", pgx.ReadWrite, pgx.ReadOnly} {
				o := pgx.TxOptions{IsoLevel: level, AccessMode: access, DeferrableMode: pgx.NotDeferrable}
				err := db.guard.InTxOptions(ctx, o, func(tx pgx.Tx) error {
					var gotLevel, readOnly, idle string
					require.NoError(t, tx.QueryRow(ctx, `select current_setting('transaction_isolation'), current_setting('transaction_read_only'),
						current_setting('idle_in_transaction_session_timeout')`).Scan(&gotLevel, &readOnly, &idle))
					want := string(level)
					if want == "" {
						want = "read committed"
					}
					require.Equal(t, want, gotLevel)
					require.Equal(t, access == pgx.ReadOnly, readOnly == "on")
					require.Equal(t, "5s", idle)
					_, err := tx.Exec(ctx, "insert into item values ($1, 1)", unique("i"))
					if access != pgx.ReadOnly {
						return err
					}
					require.ErrorContains(t, err, "read-only transaction")
					return tx.Rollback(ctx)
				})
				if access == pgx.ReadOnly {
					require.ErrorIs(t, err, pgx.ErrTxClosed) // what Commit says after the function's own Rollback
				} else {
					require.NoError(t, err)
				}
			}
		}
		for want, o := range map[string]pgx.TxOptions{
			"DEFERRABLE":      {IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable},
			"BeginQuery":      {BeginQuery: "begin"},
			"CommitQuery":     {CommitQuery: "commit and chain"},
			"isolation level": {IsoLevel: "read committed; commit"},
			"access mode":     {AccessMode: "read write; commit"},
			"deferrable mode": {DeferrableMode: "x"},
		} {
			_, err := db.guard.BeginTx(ctx, o)
			require.ErrorContains(t, err, want)
		}
		require.Zero(t, db.pool.Stat().AcquiredConns())
	})
}

func TestShorterIdleTimeoutOfTheSessionStays(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		for session, want := range map[string]string{"0": "5s", "1500ms": "1500ms", "4s": "4s", "5s": "5s", "1min": "5s", "2h": "5s", "1d": "5s"} {
			g := db.newGuard(newPool(t, db.url, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = session
			}))
			require.NoError(t, g.InTx(ctx, func(tx pgx.Tx) error {
				var got string
				require.NoError(t, tx.QueryRow(ctx, "show idle_in_transaction_session_timeout").Scan(&got))
				require.Equal(t, want, got, session)
				return nil
			}))
		}
	})
}

func TestPgxHelpersTakeTheGuard(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		require.NoError(t, pgx.BeginFunc(ctx, db.guard, inserts(ctx, "a")))
		require.NoError(t, pgx.BeginTxFunc(ctx, db.guard, pgx.TxOptions{IsoLevel: pgx.Serializable}, inserts(ctx, "b")))
		require.ErrorIs(t, pgx.BeginFunc(t.Context(), db.guard, nothing), guard.ErrNoFence)
		require.Equal(t, []string{"a", "b"}, one[[]string](db, "select array_agg(id order by id) from item"))
	})
}

func TestTransactionCannotBeEndedBehindItsBack(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		id := unique("i")
		require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
			for _, sql := range []string{
				"commit", " /* a /* nested */ one */ COMMIT", "-- c\nrollback", ";;abort", "end", "select 1; commit; select 2",
				"prepare transaction 'x'", "rollback work", "commit and chain", "select E'\\'', 1; commit", "select $$;$$; commit", `select 1 as ";"; commit`,
			} {
				_, err := tx.Exec(ctx, sql)
				require.ErrorContains(t, err, "end the fenced transaction", sql)
				rows, err := tx.Query(ctx, sql)
				require.ErrorContains(t, err, "end the fenced transaction", sql)
				rows.Close()
				require.Equal(t, err, rows.Err())
				require.Empty(t, rows.FieldDescriptions())
				require.ErrorContains(t, tx.QueryRow(ctx, sql).Scan(), "end the fenced transaction", sql)
				_, err = tx.Prepare(ctx, "p", sql)
				require.ErrorContains(t, err, "end the fenced transaction", sql)
				b := &pgx.Batch{}
				b.Queue("select 1")
				b.Queue(sql)
				require.ErrorContains(t, tx.SendBatch(ctx, b).Close(), "end the fenced transaction", sql)
			}
			for _, sql := range []string{"savepoint s", "rollback to s", "rollback work to savepoint s", "release s", "select 'commit; commit'", "(select 1)"} {
				_, err := tx.Exec(ctx, sql)
				require.NoError(t, err, sql)
			}
			return inserts(ctx, id)(tx)
		}))
		require.Equal(t, 100, db.stock(id))

		// On pgx's own connection nothing can be checked, but it is noticed.
		err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, "commit")
			require.NoError(t, err)
			require.ErrorContains(t, inserts(ctx, unique("i"))(tx), "nothing after it is fenced")
			_, err = tx.Begin(ctx)
			require.ErrorContains(t, err, "nothing after it is fenced")
			return nil
		})
		require.ErrorContains(t, err, "has ended the fenced transaction")
		require.Zero(t, db.pool.Stat().AcquiredConns())
		require.NoError(t, db.guard.InTx(ctx, nothing))
	})
}

func TestS34_SavepointRollbackKeepsTheFence(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 33, "A")
		b := fence("r", 34, "B")
		var raise func() error
		require.NoError(t, pgx.BeginFunc(ctx, db.guard, func(tx pgx.Tx) error {
			boom := errors.New("boom")
			err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
				require.NoError(t, inserts(ctx, "inner")(nested))
				return boom
			})
			require.Equal(t, boom, err)
			require.NoError(t, pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
				return pgx.BeginFunc(ctx, nested, inserts(ctx, "innermost"))
			}))
			raise = background(t, func() error { return db.guard.Raise(t.Context(), b) })
			db.awaitBlocked("r")
			_, err = tx.Exec(ctx, "insert into guarded values ('x', 'r')")
			return err
		}))
		require.NoError(t, raise())
		require.Equal(t, []string{"innermost"}, one[[]string](db, "select array_agg(id) from item"))
	})
}

func TestS34_EnterInsideASavepointIsGivenUpWithIt(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 33, "A")
	tx, err := db.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	write := func(id string) error {
		_, err := tx.Exec(ctx, "insert into guarded values ($1, 'r')", id)
		return err
	}

	nested, err := tx.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, pgguard.Enter(ctx, nested))
	require.NoError(t, write("inside"))
	require.NoError(t, nested.Rollback(ctx))
	require.Zero(t, one[int](db, "select count(*)"+gateLocks, "r"), "the gate went with the savepoint")

	nested, err = tx.Begin(ctx)
	require.NoError(t, err)
	require.ErrorContains(t, write("after"), "UF004", "so did the setting, and the trigger sees it")
	require.NoError(t, nested.Rollback(ctx))
	require.NoError(t, pgguard.Enter(ctx, tx), "entering again is all it takes")
	require.NoError(t, write("again"))
	require.NoError(t, tx.Commit(ctx))
}

func TestEnterFencesACallersTransaction(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		resource := unique("r")
		aCtx, a := db.raised(resource, 33, "A")
		begin := func() pgx.Tx {
			tx, err := db.pool.Begin(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			return tx
		}
		tx := begin()
		require.ErrorIs(t, pgguard.Enter(t.Context(), tx), guard.ErrNoFence)
		require.NoError(t, pgguard.Enter(aCtx, tx))
		require.NoError(t, pgguard.Enter(t.Context(), tx, a), "again, and with the fence spelled out")
		require.NoError(t, db.guard.Enter(aCtx, tx))
		raise := background(t, func() error { return db.guard.Raise(t.Context(), fence(resource, 34, "B")) })
		db.awaitBlocked(resource)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, raise())

		b := guard.Fence{Resource: resource, Token: 34, Holder: "B"}
		requireStale(t, pgguard.Enter(aCtx, begin()), a, b)
		requireStale(t, db.guard.Enter(aCtx, begin()), a, b)
		tx = begin()
		require.NoError(t, tx.Rollback(t.Context()))
		require.ErrorIs(t, pgguard.Enter(aCtx, tx), pgx.ErrTxClosed)

		// An additional fence in a fenced transaction.
		otherCtx, other := db.raised(unique("other"), 1, "A")
		err := db.guard.InTx(otherCtx, func(tx pgx.Tx) error { return pgguard.Enter(aCtx, tx, a) })
		requireStale(t, err, a, b)
		// If its own fence is refused, that is the one that the error is about.
		err = db.guard.InTx(aCtx, func(tx pgx.Tx) error { return pgguard.Enter(aCtx, tx, other) })
		requireStale(t, err, a, b)
	})
}

func TestGuardOfAnotherSchema(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.must(`alter schema fencing rename to "Fen""cing"`)
	_, err := newGuard(t, db.pool).Issue(t.Context(), "r", "n", "A")
	require.ErrorIs(t, err, pgguard.ErrSchema)
	require.ErrorContains(t, err, "fencectl migrate up")
}

// The SQLSTATE decides; the facts in the DETAIL only make the message richer.
func TestRefusalsWithoutDetailKeepTheirMeaning(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		for code, want := range map[string]error{"UF001": guard.ErrStale, "UF002": guard.ErrNotRaised, "UF003": guard.ErrNoFence, "UF004": guard.ErrNoFence, "UF999": nil} {
			err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
				_, err := tx.Conn().Exec(ctx, "do $$ begin raise exception 'by hand' using errcode = '"+code+"', detail = '{not json'; end $$")
				return err // not the transaction's own, and yet translated
			})
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr)
			require.Equal(t, code, pgErr.Code)
			if want != nil {
				require.ErrorIs(t, err, want)
			}
		}
	})
}
