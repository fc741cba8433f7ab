package pgguard_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

func TestS1_LateWriteIsRefused(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		id := unique("i")
		aCtx, a := db.raised(id, 33, "A")
		db.must("insert into item values ($1, 100)", id)
		bCtx, b := db.raised(id, 34, "B")
		_, err := db.guard.Exec(bCtx, "update item set stock = 90 where id = $1", id)
		require.NoError(t, err)
		_, err = db.guard.Exec(aCtx, "update item set stock = 99 where id = $1", id)
		requireStale(t, err, a, b)
		require.Equal(t, 90, db.stock(id))
	})
}

func TestS2_RaiseClosesTheReadWindow(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	aCtx, a := db.raised("r", 33, "A")
	db.must("insert into item values ('x', 100)")
	bCtx, b := db.raised("r", 34, "B")
	read := db.stock("x")                                                    // B reads
	_, err := db.guard.Exec(aCtx, "update item set stock = 110")             // A writes before B has written
	requireStale(t, err, a, b)                                               // and B knows nothing of it
	_, err = db.guard.Exec(bCtx, "update item set stock = $1::int", read+10) // B writes what it read
	require.NoError(t, err)
	require.Equal(t, 110, db.stock("x"))
}

// Between the check and the write, and between the write and the commit, the
// later holder has to wait.
func TestS3_S4_RaiseWaitsForAPausedTransaction(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			aCtx, a := db.raised("r", 33, "A")
			db.must("insert into item values ('x', 100)")
			b := fence("r", 34, "B")

			tx, err := db.guard.BeginTx(aCtx, pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			raise := background(t, func() error { return db.guard.Raise(t.Context(), b) })
			db.awaitBlocked("r") // A is stopped after its check
			_, err = tx.Exec(aCtx, "update item set stock = stock + 10")
			require.NoError(t, err)
			db.awaitBlocked("r") // and again before its commit
			require.NoError(t, tx.Commit(aCtx))
			require.NoError(t, raise())

			bCtx := guard.NewContext(t.Context(), b)
			require.NoError(t, db.guard.InTx(bCtx, func(tx pgx.Tx) error {
				var stock int
				require.NoError(t, tx.QueryRow(bCtx, "select stock from item").Scan(&stock))
				require.Equal(t, 110, stock, "B reads what A wrote")
				return nil
			}))
			requireStale(t, db.guard.InTx(aCtx, nil), a, b)
		})
	}
}

func TestS5_IdleStaleTransactionIsEnded(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	g := newGuard(t, db.pool, pgguard.WithIdleTimeout(300*time.Millisecond))
	aCtx, _ := db.raised("r", 33, "A")
	tx, err := g.Begin(aCtx)
	require.NoError(t, err)
	_, err = tx.Exec(aCtx, "insert into item values ('x', 1)")
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, g.Raise(t.Context(), fence("r", 34, "B")), "the raise outlives the idle transaction")
	require.Less(t, time.Since(start), 5*time.Second)
	err = tx.Commit(aCtx)
	require.ErrorContains(t, err, "rolled back, nothing was written")
	require.ErrorContains(t, err, "idle-in-transaction timeout")
	require.NotErrorIs(t, err, guard.ErrCommitUnknown)
	require.Zero(t, one[int](db, "select count(*) from item"))
	require.Equal(t, "0", one[string](db, "show idle_in_transaction_session_timeout"), "the setting is the transaction's own")
}

// A's process is gone, but its backend still waits for a row lock and will apply
// the write.
func TestS6_RaiseWaitsForTheBackendOfADeadClient(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	aCtx, _ := db.raised("r", 33, "A")
	db.must("insert into item values ('x', 100)")
	locker, err := db.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = locker.Exec(t.Context(), "select from item for update")
	require.NoError(t, err)

	conn, kill := rawClient(t, db.url)
	// What Guard.Exec sends, from a client that dies without a word.
	conn.Send("select fencing.enter('r', 33, '" + nonceOf(aCtx, "r") + "'); update item set stock = 99")
	db.await("select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock' and query like '%set stock = 99'")
	kill()

	raise := background(t, func() error { return db.guard.Raise(t.Context(), fence("r", 34, "B")) })
	db.awaitBlocked("r")
	require.Equal(t, 100, db.stock("x"))
	require.NoError(t, locker.Commit(t.Context()))
	require.NoError(t, raise())
	require.Equal(t, 99, db.stock("x"), "the dead client's write came before the raise, and B reads it")
}

func TestS8_ReadOfALostHolderIsRefused(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		aCtx, a := db.raised(resource, 33, "A")
		_, b := db.raised(resource, 34, "B")
		var n int
		requireStale(t, db.guard.QueryRow(aCtx, "select 1").Scan(&n), a, b)
		requireStale(t, db.guard.InTxOptions(aCtx, pgx.TxOptions{AccessMode: pgx.ReadOnly}, nil), a, b)
	})
}

// The first attempt of a write has timed out at the client, but arrives after the
// second one.
func TestS24_LateFirstAttemptOfOneTokenIsAppliedOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 33, "A")
	db.must("insert into item values ('x', 100)")
	sell := func() error {
		return db.guard.Once(ctx, "order-1", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update item set stock = stock - 1")
			return err
		})
	}
	require.NoError(t, sell())
	require.NoError(t, sell())
	require.Equal(t, 99, db.stock("x"))
}

// At REPEATABLE READ and above a stale transaction may see a serialization
// failure first; the second answer is definite.
func TestS25_SerializationFailureIsResolvedByRunningAgain(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		resource := string(level)
		aCtx, a := db.raised(resource, 33, "A")
		b := fence(resource, 34, "B")
		// A raise that has the gate and not yet committed.
		raiser, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "select fencing.raise($1, 34, $2, 'B')", resource, b.Nonce)
		require.NoError(t, err)
		stale := background(t, func() error {
			return db.guard.InTxOptions(aCtx, pgx.TxOptions{IsoLevel: level}, nothing)
		})
		db.awaitBlocked(resource)
		require.NoError(t, raiser.Commit(t.Context()))

		err = stale()
		require.ErrorContains(t, err, "40001")
		require.True(t, pgguard.Retryable(err))
		err = db.guard.InTxOptions(aCtx, pgx.TxOptions{IsoLevel: level}, nothing)
		requireStale(t, err, a, b)
		require.False(t, pgguard.Retryable(err))
	}
}

// The statement waits inside the fenced transaction; the raise can only come
// after it.
func TestS29_StatementThatWaitsIsStillFenced(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		id := unique("i")
		aCtx, _ := db.raised(id, 33, "A")
		db.must("insert into item values ($1, 100)", id)
		locker, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = locker.Exec(t.Context(), "update item set stock = 50 where id = $1", id)
		require.NoError(t, err)

		write := background(t, func() error {
			_, err := db.guard.Exec(aCtx, "update item set stock = stock - 1 where id = $1", id)
			return err
		})
		db.await("select count(*) > 0 from pg_locks where not granted and locktype = 'transactionid'")
		raise := background(t, func() error { return db.guard.Raise(t.Context(), fence(id, 34, "B")) })
		db.awaitBlocked(id)
		require.NoError(t, locker.Commit(t.Context()))
		require.NoError(t, write())
		require.NoError(t, raise())
		require.Equal(t, 49, db.stock(id))
	})
}

// Entering may wait for a raise; what comes after it must see what was committed
// during the wait, although all of it was sent at once.
func TestS30_StatementSeesWhatEnterHasWaitedFor(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		id := unique("i")
		a := fence(id, 33, "A")
		aCtx := guard.NewContext(t.Context(), a)
		var n int
		// A's own raise, still open: its earlier holder's row is committed with it.
		raiser, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "select fencing.raise($1, 33, $2, 'A')", id, a.Nonce)
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "insert into item values ($1, 7)", id)
		require.NoError(t, err)
		read := background(t, func() error {
			return db.guard.QueryRow(aCtx, "select stock from item where id = $1", id).Scan(&n)
		})
		db.awaitBlocked(id)
		require.NoError(t, raiser.Commit(t.Context()))
		require.NoError(t, read())
		require.Equal(t, 7, n)
	})
}

// A raise commits before the holder's first snapshot, so at REPEATABLE READ too
// the holder sees what the earlier one wrote.
func TestS31_RaiseComesBeforeTheSnapshot(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.must("insert into item values ('x', 100)")
	for i, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		resource := string(level)
		aCtx, _ := db.raised(resource, 33, "A")
		tx, err := db.guard.BeginTx(aCtx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = tx.Exec(aCtx, "update item set stock = $1", 999+i)
		require.NoError(t, err)
		b := fence(resource, 34, "B")
		read := background(t, func() int {
			var stock int
			bCtx := guard.NewContext(t.Context(), b)
			if err := db.guard.Raise(t.Context(), b); err != nil {
				t.Error(err)
			}
			err := db.guard.InTxOptions(bCtx, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				return tx.QueryRow(bCtx, "select stock from item").Scan(&stock)
			})
			if err != nil {
				t.Error(err)
			}
			return stock
		})
		db.awaitBlocked(resource)
		require.NoError(t, tx.Commit(aCtx))
		require.Equal(t, 999+i, read())
	}
}

func TestS35_SeveralFencesInAnyOrderDoNotDeadlock(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	resources := []string{"a", "b", "c", "d"}
	var token atomic.Int64
	deadline := time.Now().Add(2 * time.Second)
	var committed atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for time.Now().Before(deadline) && !t.Failed() {
				ctx := t.Context()
				var held []guard.Fence
				for _, i := range rand.Perm(len(resources))[:2+rand.IntN(2)] {
					f := fence(resources[i], guard.Token(token.Add(1)), "W")
					if db.guard.Raise(ctx, f) == nil {
						held = append(held, f)
					}
				}
				if len(held) == 0 {
					continue
				}
				// Enter takes them as they come, without the order of a context.
				tx, err := db.pool.Begin(ctx)
				if err == nil {
					if err = pgguard.Enter(ctx, tx, held...); err == nil {
						err = tx.Commit(ctx)
						committed.Add(1)
					}
					_ = tx.Rollback(ctx)
				}
				if err != nil && (pgguard.Retryable(err) || !isStale(err)) {
					t.Errorf("%v under %v", err, held)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, committed.Load())
}

// Whatever the order in which the fences are given, the gates are taken in one
// order. Otherwise two transactions and two raises can wait in a circle, until the
// server has looked for a deadlock and let someone jump the queue.
func TestS35_GatesAreTakenInOneOrder(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	_, a := db.raised("a", 1, "A")
	_, b := db.raised("b", 1, "A")
	if one[bool](db, "select hashtextextended('a', 5070437) > hashtextextended('b', 5070437)") {
		a, b = b, a
	}
	for _, order := range [][]guard.Fence{{a, b}, {b, a}} {
		raiser, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "select pg_advisory_xact_lock(hashtextextended($1, 5070437))", b.Resource)
		require.NoError(t, err)
		tx, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		entered := background(t, func() error { return pgguard.Enter(t.Context(), tx, order...) })
		db.awaitBlocked(b.Resource)
		require.Equal(t, 1, one[int](db, "select count(*)"+gateLocks+" and l.granted", a.Resource))
		require.NoError(t, raiser.Commit(t.Context()))
		require.NoError(t, entered())
		require.NoError(t, tx.Commit(t.Context()))
	}
}

func TestS35_SeveralFencesAreAllOrNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		r, s := unique("r"), unique("s")
		ctx, _ := db.raised(r, 33, "A")
		_, f := db.raised(s, 33, "A")
		ctx = guard.NewContext(ctx, f)
		require.NoError(t, db.guard.InTx(ctx, inserts(ctx, r)))
		_, err := db.guard.Exec(ctx, "insert into item values ($1, 1)", s)
		require.NoError(t, err)
		_, b := db.raised(s, 34, "B")
		requireStale(t, db.guard.InTx(ctx, nil), f, b)
		_, err = db.guard.Exec(ctx, "insert into item values ('never', 1)")
		requireStale(t, err, f, b)
	})
}

func TestS36_ReinsertAfterDeleteIsRefused(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	aCtx, a := db.raised("r", 33, "A")
	_, err := db.guard.Exec(aCtx, "insert into item values ('x', 1)")
	require.NoError(t, err)
	bCtx, b := db.raised("r", 34, "B")
	_, err = db.guard.Exec(bCtx, "delete from item")
	require.NoError(t, err)
	_, err = db.guard.Exec(aCtx, "insert into item values ('x', 1) on conflict (id) do update set stock = 1")
	requireStale(t, err, a, b)
	require.Zero(t, one[int](db, "select count(*) from item"))
	require.ErrorIs(t, db.guard.InTx(guard.NewContext(t.Context(), fence("never raised", 1, "A")), nil), guard.ErrNotRaised)
}

// What the guard hands out is on one connection and in one transaction.
func TestS42_CheckAndWriteAreOneTransaction(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 33, "A")
		var locks int
		var held string
		look := "select count(*), current_setting('fencing.held', true)" + gateLocks + " and l.pid = pg_backend_pid() and l.mode = 'ShareLock'"
		require.NoError(t, db.guard.QueryRow(ctx, look, resource).Scan(&locks, &held))
		require.Equal(t, 1, locks)
		require.Equal(t, "\n"+resource+"\n", held)
		require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, look, resource).Scan(&locks, &held)
		}))
		require.Equal(t, 1, locks)
		require.Zero(t, one[int](db, "select count(*)"+gateLocks, resource))
		require.Empty(t, one[*string](db, "select nullif(current_setting('fencing.held', true), '')"))
	})
}

func TestStreamOfStaleTransactionsDoesNotStarveTheRaise(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 33, "A")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := db.guard.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select pg_sleep(0.012)"); return err })
				if err != nil {
					return
				}
			}
		})
	}
	db.await("select count(*) >= 4"+gateLocks+" and l.granted", "r")
	raiseCtx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, db.guard.Raise(raiseCtx, fence("r", 34, "B")))
	close(stop)
	wg.Wait()
}
