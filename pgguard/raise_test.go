package pgguard_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
	"github.com/go-fencing/fencing/sequencer"
)

func TestRaiseMakesTheFenceCurrent(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		a := fence(resource, 33, "A")
		require.NoError(t, db.guard.Raise(t.Context(), a))
		require.NoError(t, db.guard.Raise(t.Context(), a), "S22: a repeated raise")
		b := fence(resource, 1<<62, "B")
		require.NoError(t, db.guard.Raise(t.Context(), b))
		requireStale(t, db.guard.Raise(t.Context(), a), a, b)
		twice := fence(resource, 1<<62, "C")
		err := db.guard.Raise(t.Context(), twice)
		requireStale(t, err, twice, b)
		require.ErrorIs(t, err, guard.ErrConflict)
	})
}

func TestRaiseTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	trips := &tripCounter{}
	g := newGuard(t, newPool(t, db.url, trips.count))
	a := fence("r", 1, "A")
	require.NoError(t, g.Raise(t.Context(), a)) // checks the schema and prepares
	trips.reset()
	require.NoError(t, g.Raise(t.Context(), a))
	require.Equal(t, 1, trips.reset())
}

func TestS7_LateRaiseOfALostTokenIsSafe(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	late := fence("r", 40, "A") // got 40 from a master that was lost, and pauses
	bCtx, b := db.raised("r", 34, "B")
	db.must("insert into item values ('x', 100)")
	_, err := db.guard.Exec(bCtx, "update item set stock = stock - 10")
	require.NoError(t, err)
	require.NoError(t, db.guard.Raise(t.Context(), late))
	_, err = db.guard.Exec(bCtx, "update item set stock = stock - 10")
	requireStale(t, err, b, late)
	require.Equal(t, 90, db.stock("x"))
}

func TestS37_RefusedRaiseHoldsNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, b := db.raised("r", 34, "B")
	a := fence("r", 33, "A")
	requireStale(t, db.guard.Raise(t.Context(), a), a, b)
	require.Zero(t, one[int](db, "select count(*)"+gateLocks, "r"))
	require.Zero(t, one[int](db, "select count(*) from pg_stat_activity where state like 'idle in%' and datname = current_database()"))
	_, err := db.guard.Exec(ctx, "insert into item values ('x', 1)")
	require.NoError(t, err)
}

func TestInvalidFenceIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	pool := newPool(t, "postgres://127.0.0.1:1/nowhere")
	g := newGuard(t, pool)
	for _, f := range []guard.Fence{
		{},
		{Resource: "r", Nonce: "n"},
		{Resource: "r", Token: 1},
		{Resource: "a\nb", Token: 1, Nonce: "n"},
	} {
		require.ErrorIs(t, g.Raise(t.Context(), f), guard.ErrInvalid)
		ctx := guard.NewContext(t.Context(), f)
		_, err := g.Exec(ctx, "select 1")
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorIs(t, g.InTx(ctx, nil), guard.ErrInvalid)
		require.ErrorIs(t, pgguard.Enter(ctx, nil), guard.ErrInvalid)
		require.ErrorIs(t, pgguard.Enter(t.Context(), nil, f), guard.ErrInvalid)
	}
	_, err := g.Issue(t.Context(), "r", "", "A")
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.Zero(t, pool.Stat().NewConnsCount())
}

func TestBlockedRaiseNamesTheBackend(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pool := newPool(t, db.url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "worker-7" })
	ctx, _ := db.raised("r", 33, "A")
	tx, err := newGuard(t, pool).Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	// A transaction that is busy is not idle, so its idle timeout is no help.
	busy := background(t, func() error { _, err := tx.Exec(ctx, "select pg_sleep(3)"); return err })
	db.await("select count(*) > 0 from pg_stat_activity where query = 'select pg_sleep(3)' and state = 'active'")

	g := newGuard(t, db.pool, pgguard.WithLockTimeout(200*time.Millisecond))
	err = g.Raise(t.Context(), fence("r", 34, "B"))
	require.ErrorIs(t, err, guard.ErrBlocked)
	var blocked *pgguard.BlockedError
	require.ErrorAs(t, err, &blocked)
	require.Equal(t, "r", blocked.Resource)
	require.EqualValues(t, tx.Conn().PgConn().PID(), blocked.PID)
	require.Equal(t, "worker-7", blocked.Application)
	require.Equal(t, "active", blocked.State)
	require.WithinDuration(t, time.Now(), blocked.Since, time.Minute)
	require.GreaterOrEqual(t, blocked.Waited, 200*time.Millisecond)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Regexp(t, `^pgguard: raise "r": blocked for \d+ms by backend \d+ of application "worker-7", active, in a transaction of .* since 20.*Z; the fence was not raised`, err.Error())
	require.NoError(t, busy())
	require.NoError(t, tx.Commit(ctx))
	require.Zero(t, one[int](db, "select count(*)"+gateLocks, "r"))
	require.NoError(t, g.Raise(t.Context(), fence("r", 34, "B")))
}

func TestRaiseWhoseContextEndsSaysWhetherItWasBlocked(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 33, "A")
	tx, err := db.guard.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	pid := tx.Conn().PgConn().PID()

	for name, end := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			waiting, cancel := context.WithCancel(t.Context())
			go func() { db.awaitBlocked("r"); cancel() }()
			return waiting, cancel
		},
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 300*time.Millisecond)
		},
	} {
		waiting, cancel := end()
		err := db.guard.Raise(waiting, fence("r", 34, "B"))
		require.ErrorIs(t, err, guard.ErrBlocked, name)
		require.ErrorIs(t, err, waiting.Err(), name)
		var blocked *pgguard.BlockedError
		require.ErrorAs(t, err, &blocked)
		require.EqualValues(t, pid, blocked.PID)
		require.ErrorContains(t, err, "the fence may still be raised", "the server may not have been told in time")
		cancel()
	}

	require.NoError(t, tx.Rollback(ctx))
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	err = db.guard.Raise(dead, fence("r", 34, "B"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, guard.ErrBlocked)
}

func TestBlockedRaiseByAnApplicationWithoutAName(t *testing.T) {
	t.Parallel()
	err := &pgguard.BlockedError{Resource: "r", Waited: time.Second, PID: 7, State: "idle in transaction"}
	require.ErrorContains(t, err, `pgguard: raise "r": blocked for 1s by backend 7, idle in transaction; `)
}

// The search for the backend in the way must not wait for the connection of the
// raise itself.
func TestBlockedRaiseOfAPoolWithOneConnection(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 33, "A")
	tx, err := db.guard.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	g := newGuard(t, newPool(t, db.url, func(c *pgxpool.Config) { c.MaxConns = 1 }))
	waiting, cancel := context.WithCancel(t.Context())
	go func() { db.awaitBlocked("r"); cancel() }()
	err = g.Raise(waiting, fence("r", 34, "B"))
	require.ErrorIs(t, err, guard.ErrBlocked)
	require.ErrorIs(t, err, context.Canceled)
}

func TestRaiseThatTheStatementTimeoutEndsWasBlocked(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 33, "A")
	tx, err := newGuard(t, db.pool, pgguard.WithLockTimeout(2*time.Minute)).Begin(ctx) // it may sit idle for 1m
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	g := newGuard(t, newPool(t, db.url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["statement_timeout"] = "2s" }))
	err = g.Raise(t.Context(), fence("r", 34, "B"))
	require.ErrorIs(t, err, guard.ErrBlocked)
	require.ErrorContains(t, err, "the fence was not raised")
	var blocked *pgguard.BlockedError
	require.ErrorAs(t, err, &blocked)
	require.EqualValues(t, tx.Conn().PgConn().PID(), blocked.PID)
	_, err = g.Issue(t.Context(), "r", "n", "B")
	require.ErrorIs(t, err, guard.ErrBlocked)
}

// A function of somebody's own that fits the arguments better than the one of
// pg_catalog would run with the rights of the program.
func TestNobodysOwnFunctionIsCalled(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.must("create function public.hashtextextended(text, int) returns bigint language plpgsql as $$ begin raise 'captured'; end $$")
	ctx, _ := db.raised("r", 33, "A")
	tx, err := db.guard.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	waiting, cancel := context.WithCancel(t.Context())
	go func() {
		db.await("select count(*) > 0 from pg_locks join pg_database d on d.oid = database where datname = current_database() and not granted")
		cancel()
	}()
	require.ErrorIs(t, db.guard.Raise(waiting, fence("r", 34, "B")), guard.ErrBlocked)
}

func TestIssueMintsAndRaises(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		a, err := db.guard.Issue(t.Context(), resource, "nonce-a", "A")
		require.NoError(t, err)
		require.Equal(t, guard.Fence{Resource: resource, Token: 1, Nonce: "nonce-a", Holder: "A"}, a)
		again, err := db.guard.Issue(t.Context(), resource, "nonce-a", "A, whose reply was lost")
		require.NoError(t, err)
		require.Equal(t, a, again)
		require.NoError(t, db.guard.InTx(guard.NewContext(t.Context(), a), func(pgx.Tx) error { return nil }))

		b, err := db.guard.Issue(t.Context(), resource, "nonce-b", "B")
		require.NoError(t, err)
		require.EqualValues(t, 2, b.Token)
		requireStale(t, db.guard.InTx(guard.NewContext(t.Context(), a), nil), a, b)

		require.NoError(t, db.guard.Raise(t.Context(), fence(resource, 1<<63-1, "C")))
		_, err = db.guard.Issue(t.Context(), resource, "nonce-d", "D")
		require.ErrorIs(t, err, sequencer.ErrExhausted)
	})
}

func TestIssueGivesConcurrentCallersTheirOwnTokens(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	var mu sync.Mutex
	tokens := map[guard.Token]string{}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 10 {
				f, err := db.guard.Issue(t.Context(), "r", unique("n"), "A")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, taken := tokens[f.Token]; taken {
					t.Errorf("token %d was given to %s and %s", f.Token, other, f.Nonce)
				}
				tokens[f.Token] = f.Nonce
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, tokens, 60)
}

func TestObserverIsToldOfRaisesAndRefusals(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		var mu sync.Mutex
		var events []guard.Event
		g := db.newGuard(db.pool, pgguard.WithObserver(func(e guard.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}))
		take := func() (kinds []guard.EventKind, last guard.Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				kinds, last = append(kinds, e.Kind), e
			}
			events = nil
			return kinds, last
		}
		a, b := fence("r", 33, "A"), fence("r", 34, "B")
		require.NoError(t, g.Raise(t.Context(), a))
		kinds, last := take()
		require.Equal(t, []guard.EventKind{guard.EventRaised}, kinds)
		require.Equal(t, a, last.Fence)
		require.Positive(t, last.Took)
		require.NoError(t, g.Raise(t.Context(), b))
		take()

		stale := guard.NewContext(t.Context(), a)
		for name, call := range map[string]func() error{
			"Raise": func() error { return g.Raise(t.Context(), a) },
			"InTx":  func() error { return g.InTx(stale, db.unreached()) },
			"Exec":  func() error { _, err := g.Exec(stale, "select 1"); return err },
			"Query": func() error {
				rows, err := g.Query(stale, "select 1")
				require.Error(t, err)
				require.Equal(t, err, rows.Err())
				return rows.Err()
			},
			"SendBatch": func() error {
				b := &pgx.Batch{}
				b.Queue("select 1")
				return g.SendBatch(stale, b).Close()
			},
			"SendBatch that begins": func() error {
				b := &pgx.Batch{}
				b.BeginTx(pgx.TxOptions{})
				b.Queue("select 1")
				results := g.SendBatch(stale, b)
				defer func() { _ = results.Tx().Rollback(t.Context()) }()
				return results.Close()
			},
			"unguarded row": func() error {
				return g.InTx(guard.NewContext(t.Context(), b), func(tx pgx.Tx) error {
					rows, err := tx.Query(t.Context(), "insert into guarded values ('x', 'other') returning v")
					if err != nil {
						return err
					}
					rows.Close()
					require.Equal(t, rows.Err(), rows.Err())
					return rows.Err()
				})
			},
		} {
			err := call()
			require.Error(t, err, name)
			kinds, last := take()
			require.Equal(t, []guard.EventKind{guard.EventRefused}, kinds, name)
			require.ErrorIs(t, last.Err, err, name)
			if name != "unguarded row" {
				require.Equal(t, a, last.Fence, name)
			}
		}
	})
}

// S9, S22: two holders of one token who both found an earlier fence, and wait for its
// transaction. Only the first of them may have the token.
func TestS9_TwoRaisesOfOneTokenThatWaitTogether(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	tx, err := db.guard.BeginTx(ctx, pgx.TxOptions{})
	require.NoError(t, err)
	raiseB := background(t, func() error { return db.guard.Raise(t.Context(), fence("r", 2, "B")) })
	raiseC := background(t, func() error { return db.guard.Raise(t.Context(), fence("r", 2, "C")) })
	db.await("select count(*) = 2"+gateLocks+" and not l.granted", "r")
	require.NoError(t, tx.Commit(ctx))
	first, second := raiseB(), raiseC()
	if first != nil {
		first, second = second, first
	}
	require.NoError(t, first)
	require.ErrorIs(t, second, guard.ErrConflict)
}

// An operator has lowered a poisoned fence: its holders, late ones too, are stale.
func TestS18_AFenceOfAGivenUpRangeIsStale(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	poisoned, last := db.raised("r", 1<<63-1, "A")
	late := fence("r", 1<<63-2, "B") // drew its token before, and pauses
	db.must("select from fencing.rebase('r', 1000)")
	now := guard.Fence{Resource: "r", Token: 1000, Holder: "rebase"}
	for _, f := range []guard.Fence{last, late} {
		err := db.guard.Raise(t.Context(), f)
		requireStale(t, err, f, now)
		require.NotErrorIs(t, err, guard.ErrConflict)
		require.NotContains(t, err.Error(), f.Nonce)
	}
	require.ErrorIs(t, db.guard.InTx(poisoned, nil), guard.ErrNotRaised)
	next, err := db.guard.Issue(t.Context(), "r", "nonce", "C")
	require.NoError(t, err)
	require.EqualValues(t, 1001, next.Token)
	require.NoError(t, db.guard.InTx(guard.NewContext(t.Context(), next), func(pgx.Tx) error { return nil }))
}
