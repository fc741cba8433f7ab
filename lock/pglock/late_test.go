package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
)

// Fault 1: an undo may overtake the acquisition that it undoes, which then had the lock
// for its whole TTL, whoever had it in between.
func TestALateAcquireIsRefusedAfterItsRelease(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	for name, between := range map[string]func(t *testing.T, b *pglock.Backend, undo func()){
		"nobody has it": func(_ *testing.T, _ *pglock.Backend, undo func()) { undo(); undo() },
		"while a rival has it": func(t *testing.T, b *pglock.Backend, undo func()) {
			rival := request()
			acquire(t, b, rival)
			undo()
			require.NoError(t, b.Release(t.Context(), rival))
		},
		"before a rival has it": func(t *testing.T, b *pglock.Backend, undo func()) {
			undo()
			rival := request()
			acquire(t, b, rival)
			require.NoError(t, b.Release(t.Context(), rival))
		},
	} {
		for _, opts := range [][]pglock.Option{nil, {pglock.WithRaise()}} {
			b, r := open(t, pool, opts...), request()
			between(t, b, func() { require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost, name) })
			for _, late := range []func() (guard.Token, error){
				func() (guard.Token, error) { return b.Acquire(t.Context(), r) },
				func() (guard.Token, error) { return b.AcquireInTurn(t.Context(), r, time.Minute) },
			} {
				_, err := late()
				require.ErrorContains(t, err, "released before it arrived", name)
			}
			h, err := b.Inspect(t.Context(), resource)
			require.NoError(t, err)
			require.Equal(t, lock.Holding{Resource: resource}, h, name)
			next := request()
			acquire(t, b, next)
			require.NoError(t, b.Release(t.Context(), next))
		}
	}
}

// The first of a queue would keep the others waiting for as long as it is given.
func TestALateAcquireInTurnDoesNotQueueAfterItsRelease(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b, rival, r := open(t, pool), request(), request()
	acquire(t, b, rival)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	_, err := b.AcquireInTurn(t.Context(), r, time.Minute)
	require.ErrorContains(t, err, "released before it arrived")
	require.Zero(t, query[int](t, pool, "select count(*) from fencing.lease_queue"))
}

func TestALateJoinIsRefusedAfterItsLeave(t *testing.T) {
	t.Parallel()
	b, r := open(t, connect(t, database(t))), request()
	acquire(t, b, r)
	require.ErrorIs(t, b.Leave(t.Context(), r, "member"), lock.ErrLost)
	require.ErrorIs(t, b.Join(t.Context(), r, "member"), lock.ErrLost)
	require.NoError(t, b.Join(t.Context(), r, "another"))
	require.NoError(t, b.Leave(t.Context(), r, "another"))
	require.NoError(t, b.Renew(t.Context(), r), "who has it is not concerned")
	require.NoError(t, b.Release(t.Context(), r))
	acquire(t, b, request())
}

func TestWhoReleasedAnExpiredLeaseDoesNotGetItBack(t *testing.T) {
	t.Parallel()
	b, r := open(t, connect(t, database(t))), request()
	r.TTL = 10 * time.Millisecond
	acquire(t, b, r)
	require.Eventually(t, func() bool { return b.Renew(t.Context(), r) != nil }, within, r.TTL)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	_, err := b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "released before it arrived")
}

// It waits for a transaction of an earlier fence, and its own lease is over, when its
// release comes.
func TestAnAcquireThatIsReleasedWhileItWaitsIsRefused(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b, r := open(t, pool, pglock.WithRaise()), request()
	tx := stale(t, store(t, pool), guard.Fence{Resource: resource, Token: acquire(t, b, r), Nonce: r.Nonce})
	_, err := pool.Exec(t.Context(), "update fencing.lease set expires_at = now() - interval '1 second'")
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() { _, err := b.Acquire(context.WithoutCancel(t.Context()), r); failed <- err }()
	awaitGate(t, pool)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorContains(t, <-failed, "released before it arrived")
	acquire(t, b, request())
}

// A release that has waited for the row finds another's nonce in it, and has it locked.
// The acquisition that has the gate, which the release must not ask for then, wants it.
func TestAReleaseAndAnAcquisitionDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b, r := open(t, pool), request()
	acquire(t, b, r)
	exec := func(sql string, on interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	},
	) {
		_, err := on.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("update fencing.lease set expires_at = now() - interval '1 second'", pool)
	rival, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rival.Rollback(context.Background()) })
	exec("update fencing.lease set nonce = 'rival'", rival)
	await := func(waiting int) {
		require.Eventually(t, func() bool {
			return query[int](t, pool, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == waiting
		}, within, time.Millisecond)
	}
	released, acquired := make(chan error, 1), make(chan error, 1)
	go func() { released <- b.Release(context.WithoutCancel(t.Context()), r) }()
	await(1)
	go func() { _, err := b.Acquire(context.WithoutCancel(t.Context()), request()); acquired <- err }()
	await(2)
	require.NoError(t, rival.Commit(t.Context()))
	require.ErrorIs(t, <-released, lock.ErrLost)
	require.NoError(t, <-acquired)
}

// Where every release finds nothing, nothing but these releases sweeps.
func TestSpentNoncesAreSwept(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b := open(t, pool)
	_, err := pool.Exec(t.Context(), `insert into fencing.lease_spent values ('old', 'n', 'n', now() - interval '61 minutes'), ('recent', 'n', 'n', now() - interval '59 minutes')`)
	require.NoError(t, err)
	for range 20_000 { // one in 500 sweeps
		require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
		if query[string](t, pool, "select string_agg(resource, ' ') from fencing.lease_spent where nonce = 'n'") == "recent" {
			return
		}
	}
	t.Fatal("nothing sweeps the nonces that are spent")
}
