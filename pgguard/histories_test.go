package pgguard_test

import (
	"context"
	"sync"
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
	eachBegin(t, func(t *testing.T, db *database) {
		g := db.newGuard(db.pool, pgguard.WithIdleTimeout(300*time.Millisecond))
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
	})
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
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		resource := unique("r")
		aCtx, a := db.raised(resource, 33, "A")
		_, b := db.raised(resource, 34, "B")
		var n int
		requireStale(t, db.guard.QueryRow(aCtx, "select 1").Scan(&n), a, b)
		requireStale(t, db.guard.InTxOptions(aCtx, pgx.TxOptions{AccessMode: pgx.ReadOnly}, db.unreached()), a, b)
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

func TestStreamOfStaleTransactionsDoesNotStarveTheRaise(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
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
	})
}
