package pgguard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

func TestOnceAppliesAnOperationOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		id := unique("i")
		ctx, a := db.raised(id, 33, "A")
		db.must("insert into item values ($1, 100)", id)
		sell := func(ctx context.Context, operation string) error {
			return db.guard.Once(ctx, operation, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "update item set stock = stock - 1 where id = $1", id)
				return err
			})
		}
		require.ErrorIs(t, sell(t.Context(), id+" 1"), guard.ErrNoFence)
		boom := errors.New("boom")
		require.Equal(t, boom, db.guard.Once(ctx, id+" 1", func(pgx.Tx) error { return boom }), "a failed attempt does not count")
		require.NoError(t, sell(ctx, id+" 1"))
		require.NoError(t, sell(ctx, id+" 1"))
		require.Equal(t, 99, db.stock(id))
		require.NoError(t, sell(ctx, id+" 2"))
		require.Equal(t, 98, db.stock(id), "another operation is independent")

		bCtx, b := db.raised(id, 34, "B")
		requireStale(t, sell(ctx, id+" 1"), a, b)
		requireStale(t, sell(ctx, id+" 3"), a, b)
		require.NoError(t, sell(bCtx, id+" 1"), "applied under an earlier fence is applied")
		require.NoError(t, sell(bCtx, id+" 3"), "a refused attempt does not count")
		require.Equal(t, 97, db.stock(id))
		require.Zero(t, db.pool.Stat().AcquiredConns())
	})
}

func TestOnceOfOneOperationWaitsForTheOther(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	for name, first := range map[string]error{"committed": nil, "rolled back": errors.New("boom")} {
		started, finish := make(chan struct{}), make(chan struct{})
		one := background(t, func() error {
			return db.guard.Once(ctx, name, func(pgx.Tx) error {
				close(started)
				<-finish
				return first
			})
		})
		<-started
		var ran atomic.Bool
		two := background(t, func() error {
			return db.guard.Once(ctx, name, func(pgx.Tx) error { ran.Store(true); return nil })
		})
		db.await("select count(*) > 0 from pg_locks where not granted and locktype = 'transactionid'")
		require.False(t, ran.Load())
		close(finish)
		require.Equal(t, first, one())
		require.NoError(t, two())
		require.Equal(t, first != nil, ran.Load(), name)
	}
}

func TestOnceUnderConcurrency(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	db.must("insert into item values ('x', 0)")
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for _, operation := range strings.Split("abcdefghij", "") {
				err := db.guard.Once(ctx, operation, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "update item set stock = stock + 1")
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 10, db.stock("x"))
}

func TestOnceRefusesOddNames(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	for _, name := range []string{"", strings.Repeat("x", 513), "\xff", "a\x00b"} {
		require.ErrorContains(t, db.guard.Once(ctx, name, nil), "pgguard: once")
	}
	require.NoError(t, db.guard.Once(ctx, strings.Repeat("x", 512), nothing))
	require.NoError(t, db.guard.Once(ctx, "'; drop table item; --", nothing))
}

func TestOnceTakesNoRoundTripOfItsOwn(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	trips := &tripCounter{}
	g := newGuard(t, newPool(t, db.url, trips.count))
	ctx, _ := db.raised("r", 1, "A")
	require.NoError(t, g.Once(ctx, "warm up", nothing))
	trips.reset()
	require.NoError(t, g.Once(ctx, "x", nothing))
	require.Equal(t, 2, trips.reset(), "begin and commit")
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
