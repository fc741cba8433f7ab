package pgguard_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// At REPEATABLE READ and above a stale transaction may see a serialization
// failure first; the second answer is definite.
func TestS25_SerializationFailureIsResolvedByRunningAgain(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
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
	})
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
	eachBegin(t, func(t *testing.T, db *database) {
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
	})
}

// What the guard hands out is on one connection and in one transaction.
func TestS42_CheckAndWriteAreOneTransaction(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
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

// The carried statement waits inside the fenced transaction.
func TestS29_CarriedStatementThatWaitsIsStillFenced(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin())
		id := unique("i")
		aCtx, _ := db.raised(id, 33, "A")
		db.must("insert into item values ($1, 100)", id)
		locker, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = locker.Exec(t.Context(), "update item set stock = 50 where id = $1", id)
		require.NoError(t, err)
		write := background(t, func() error {
			return g.InTx(aCtx, func(tx pgx.Tx) error {
				_, err := tx.Exec(aCtx, "update item set stock = stock - 1 where id = $1", id)
				return err
			})
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

// Entering waits for a raise; the carried statement sees what came with that.
func TestS30_CarriedStatementSeesWhatEnterHasWaitedFor(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin())
		id := unique("i")
		a := fence(id, 33, "A")
		aCtx := guard.NewContext(t.Context(), a)
		raiser, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "select fencing.raise($1, 33, $2, 'A')", id, a.Nonce)
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "insert into item values ($1, 7)", id)
		require.NoError(t, err)
		var n int
		read := background(t, func() error {
			return g.InTx(aCtx, func(tx pgx.Tx) error {
				return tx.QueryRow(aCtx, "select stock from item where id = $1", id).Scan(&n)
			})
		})
		db.awaitBlocked(id)
		require.NoError(t, raiser.Commit(t.Context()))
		require.NoError(t, read())
		require.Equal(t, 7, n)
	})
}

// The function keeps to itself that entering has failed, and InTx tells it all the
// same, so that the transaction can be run again.
func TestS25_DeferredSerializationFailureThatIsSwallowed(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, pgguard.WithDeferredBegin())
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		resource := string(level)
		aCtx, _ := db.raised(resource, 33, "A")
		raiser, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "select fencing.raise($1, 34, 'n', 'B')", resource)
		require.NoError(t, err)
		own := errors.New("the function's own")
		stale := background(t, func() error {
			return db.guard.InTxOptions(aCtx, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, _ = tx.Exec(aCtx, "insert into item values ($1, 1)", resource)
				return own
			})
		})
		db.awaitBlocked(resource)
		require.NoError(t, raiser.Commit(t.Context()))
		err = stale()
		require.True(t, pgguard.Retryable(err), "%v", err)
		require.ErrorIs(t, err, own)
	}
	requireIdle(t, db.pool)
}
