package pgguard_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// Of a batch that was not run nothing is called.
func TestARefusedBatchCallsNoCallback(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin())
		resource := unique("r")
		ctx, _ := db.raised(resource, 33, "A")
		require.NoError(t, g.InTx(ctx, nothing))
		db.raised(resource, 34, "B")
		err := g.InTx(ctx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("select 1").QueryRow(func(pgx.Row) error { t.Error("QueryRow"); return nil })
			b.Queue("select 1").Query(func(pgx.Rows) error { t.Error("Query"); return nil })
			return tx.SendBatch(ctx, b).Close()
		})
		require.ErrorIs(t, err, guard.ErrStale)
	})
}

// pgx looks for the callback when it reads the result.
func TestACallbackMayComeAfterTheBatch(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		called := 0
		require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("select 1")
			late := b.Queue("select 2")
			results := tx.SendBatch(ctx, b)
			late.Exec(func(pgconn.CommandTag) error { called++; return nil })
			return results.Close()
		}))
		require.Equal(t, 1, called)
	})
}
