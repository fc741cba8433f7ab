package pgguard_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

func TestRowsGiveTheirConnectionBackOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		acquired := func() int32 { return db.pool.Stat().AcquiredConns() }

		rows, err := db.guard.Query(ctx, "select generate_series(1, 3)")
		require.NoError(t, err)
		require.EqualValues(t, 1, acquired())
		require.NotNil(t, rows.Conn())
		require.True(t, rows.Next())
		values, err := rows.Values()
		require.NoError(t, err)
		require.Equal(t, []any{int32(1)}, values)
		require.NoError(t, rows.Err())
		for rows.Next() {
		}
		require.Zero(t, acquired())
		rows.Close()
		rows.Close()
		require.NoError(t, rows.Err())
		require.Equal(t, "SELECT 3", rows.CommandTag().String())

		rows, err = db.guard.Query(ctx, "select 'x'")
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.Error(t, rows.Scan(new(int)))
		require.Zero(t, acquired(), "a failed Scan closes the rows, as in pgx")
		require.Error(t, rows.Err())

		require.ErrorIs(t, db.guard.QueryRow(ctx, "select 1 where false").Scan(new(int)), pgx.ErrNoRows)
		require.Error(t, db.guard.QueryRow(ctx, "select 1").Scan(new(pgtype.DriverBytes)))
		require.Error(t, db.guard.QueryRow(ctx, "select 1").Scan(new(int), new(int)))
		require.Panics(t, func() { _ = db.guard.QueryRow(ctx, "select 1").Scan(panicker{}) })
		b := &pgx.Batch{}
		b.Queue("select 1").Exec(func(pgconn.CommandTag) error { panic("a callback of the caller") })
		require.Panics(t, func() { _ = db.guard.SendBatch(ctx, b).Close() })
		require.Error(t, db.guard.QueryRow(ctx, "select 1/0").Scan(new(int)))
		rows, err = db.guard.Query(ctx, "select 1/(3-x) from generate_series(1, 3) x")
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
		}
		require.ErrorContains(t, err, "division by zero")
		require.Zero(t, acquired())
	})
}

type panicker struct{}

func (panicker) Scan(any) error { panic("a scanner of the caller") }

func TestRowsThatAreNotReadKeepTheGate(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		rows, err := db.guard.Query(ctx, "select repeat('x', 1000) from generate_series(1, 50000)")
		require.NoError(t, err)
		defer rows.Close()
		require.Equal(t, 1, one[int](db, "select count(*)"+gateLocks, resource), "the server has more to send")
		rows.Close()
		require.NoError(t, rows.Err())
		require.Zero(t, one[int](db, "select count(*)"+gateLocks, resource))
	})
}
