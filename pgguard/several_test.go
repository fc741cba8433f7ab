package pgguard_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

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
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		r, s := unique("r"), unique("s")
		ctx, _ := db.raised(r, 33, "A")
		_, f := db.raised(s, 33, "A")
		ctx = guard.NewContext(ctx, f)
		require.NoError(t, db.guard.InTx(ctx, inserts(ctx, r)))
		_, err := db.guard.Exec(ctx, "insert into item values ($1, 1)", s)
		require.NoError(t, err)
		_, b := db.raised(s, 34, "B")
		requireStale(t, db.guard.InTx(ctx, db.unreached()), f, b)
		_, err = db.guard.Exec(ctx, "insert into item values ('never', 1)")
		requireStale(t, err, f, b)
	})
}
