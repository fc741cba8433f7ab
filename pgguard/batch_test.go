package pgguard_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestErrorsOfABatchOutliveIt(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		b := &pgx.Batch{}
		b.Queue("select 1/(3-x) from generate_series(1, 3) x")
		b.Queue("select 2")
		results := db.guard.SendBatch(ctx, b)
		rows, _ := results.Query()
		rows.Close()
		row := results.QueryRow()
		require.ErrorContains(t, results.Close(), "division by zero")
		require.ErrorContains(t, rows.Err(), "division by zero")
		require.Error(t, row.Scan(new(int)))
		require.ErrorContains(t, results.Close(), "division by zero")
	})
}

func TestBatchOfTheCallerStaysAsItWas(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	b := &pgx.Batch{}
	first, second := b.Queue("select 1"), b.Queue("select 2")
	require.NoError(t, db.guard.SendBatch(ctx, b).Close())
	require.Equal(t, 2, b.Len())
	require.Same(t, first, b.QueuedQueries[0])
	require.Same(t, second, b.QueuedQueries[1])
	require.NoError(t, db.guard.SendBatch(ctx, &pgx.Batch{}).Close(), "nothing to do under a current fence")

	b = &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	b.Queue("select 1")
	results := db.guard.SendBatch(ctx, b)
	require.NoError(t, results.Close())
	require.NoError(t, results.Tx().Rollback(ctx))
	require.Equal(t, 2, b.Len())
	require.Equal(t, "begin", b.QueuedQueries[0].SQL)
}

func TestBatchWhoseBeginFailsGivesItsConnectionBack(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		for name, end := range map[string]func(pgx.Tx) error{
			"Commit":   func(tx pgx.Tx) error { return tx.Commit(ctx) },
			"Rollback": func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		} {
			b := &pgx.Batch{}
			b.BeginTx(pgx.TxOptions{BeginQuery: "begin nonsense"})
			b.Queue("select 1")
			results := db.guard.SendBatch(ctx, b)
			require.ErrorContains(t, results.Close(), "42601", name)
			require.ErrorIs(t, end(results.Tx()), pgx.ErrTxClosed, name)
			require.Zero(t, db.pool.Stat().AcquiredConns(), name)
		}
	})
}
