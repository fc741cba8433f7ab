package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/pgguard"
)

func store(t *testing.T, pool *pgxpool.Pool) *pgguard.Guard {
	t.Helper()
	// A transaction that a test leaves idle is not ended by the server.
	g, err := pgguard.New(pool, pgguard.WithLockTimeout(2*time.Minute), pgguard.WithIdleTimeout(time.Minute))
	require.NoError(t, err)
	return g
}

func nothing(pgx.Tx) error { return nil }

// stale begins a transaction under a fence that is to be raised past, and keeps it open.
func stale(t *testing.T, g *pgguard.Guard, f guard.Fence) pgx.Tx {
	t.Helper()
	tx, err := g.Begin(guard.NewContext(t.Context(), f))
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// awaitGate waits until an acquisition waits for a transaction of an earlier fence.
func awaitGate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		return query[bool](t, pool, "select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))")
	}, within, time.Millisecond)
}

func TestWithRaiseNeedsNoGuardInTheLocker(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	g, l := store(t, pool), locker(t, open(t, pool, pglock.WithRaise()))
	old, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	require.NoError(t, g.InTx(old.Context(), nothing))
	require.NoError(t, old.Release(t.Context()))
	require.NoError(t, l.Do(t.Context(), resource, func(ctx context.Context) error {
		require.NoError(t, g.InTx(ctx, nothing))
		stale := guard.NewContext(t.Context(), old.Fence())
		require.ErrorIs(t, g.InTx(stale, nothing), guard.ErrStale)
		return nil
	}))
}

// The guard that is given to the locker all the same finds its work done, and has
// nothing to wait for: not even the gate, which a transaction of the fence holds.
func TestAGuardFindsTheFenceRaised(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	g := store(t, pool)
	b := open(t, pool, pglock.WithRaise())
	l := locker(t, b, lock.WithGuards(g))
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, s.Fence().Token.String()+" "+s.Fence().Nonce, query[string](t, pool, "select token || ' ' || nonce from fencing.fence"))
	require.NoError(t, g.InTx(s.Context(), func(pgx.Tx) error {
		quick, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return g.Raise(quick, s.Fence())
	}))
	r := lock.Request{Resource: resource, Nonce: s.Fence().Nonce, TTL: time.Minute}
	require.Equal(t, s.Fence().Token, acquire(t, b, r), "its own raise is no reason for another token")
}

// S13, S40: the fence is ahead because another lock raised it, or the counter was
// restored from a backup. The token is above it at once.
func TestS13_WithRaiseTheTokenIsAboveTheFenceInForce(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	g := store(t, pool)
	require.NoError(t, g.Raise(t.Context(), guard.Fence{Resource: resource, Token: 1_000_000, Nonce: "another lock's"}))
	b := open(t, pool, pglock.WithRaise())
	r := request()
	require.EqualValues(t, 1_000_001, acquire(t, b, r))
	require.NoError(t, g.Raise(t.Context(), guard.Fence{Resource: resource, Token: 2_000_000, Nonce: "another lock's"}))
	require.EqualValues(t, 2_000_001, acquire(t, b, r), "the same holder, repaired")
	require.NoError(t, b.Release(t.Context(), r))

	plain := request() // by a process that does not raise
	require.EqualValues(t, 2_000_002, acquire(t, open(t, pool), plain))
}

// Without WithRaise the locker repairs the counter from the store.
func TestS13_TheLockerRepairsTheCounter(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	g := store(t, pool)
	require.NoError(t, g.Raise(t.Context(), guard.Fence{Resource: resource, Token: 500, Nonce: "before the restore"}))
	s, err := locker(t, open(t, pool), lock.WithGuards(g)).Acquire(t.Context(), resource)
	require.NoError(t, err)
	require.EqualValues(t, 501, s.Fence().Token)
	require.NoError(t, g.InTx(s.Context(), nothing))
}

// S5: an earlier holder's transaction is open. The acquisition names it, and
// nothing is granted; the earlier holder may say meanwhile that it gives up.
func TestS5_ABlockedRaiseGrantsNothing(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t), "application_name=earlier")
	g, b := store(t, pool), open(t, pool, pglock.WithRaise())
	old := request()
	old.TTL = 10 * time.Millisecond
	token := acquire(t, b, old)
	tx := stale(t, g, guard.Fence{Resource: resource, Token: token, Nonce: old.Nonce})
	require.Eventually(t, func() bool { return b.Renew(t.Context(), old) != nil }, within, 5*time.Millisecond)

	next := request()
	next.TTL = 8 * time.Second // so it waits for 4s
	failed := make(chan error, 1)
	go func() { _, err := b.Acquire(t.Context(), next); failed <- err }()
	awaitGate(t, pool)
	_, err := b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld, "others are told at once")
	require.ErrorIs(t, b.Renew(t.Context(), old), lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), old), lock.ErrLost)
	require.Empty(t, failed, "all that while it waits")
	err = <-failed
	require.ErrorIs(t, err, guard.ErrBlocked)
	require.ErrorContains(t, err, `of application "earlier", idle in transaction`)
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Zero(t, h.Members)
	require.NoError(t, tx.Commit(t.Context()), "its fence was still in force")

	require.Greater(t, acquire(t, b, request()), token)
}

// Fault 1: an attempt that was given up is still under way in the server when it is
// undone.
func TestAReleaseWaitsForTheAcquisitionThatItUndoes(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	b, r := open(t, pool), request()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "select fencing.lease_acquire($1, $2, '', 60000)", r.Resource, r.Nonce)
	require.NoError(t, err)
	released := make(chan error, 1)
	go func() { released <- b.Release(context.WithoutCancel(t.Context()), r) }()
	require.Eventually(t, func() bool {
		return query[bool](t, pool, "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')")
	}, within, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-released)
	acquire(t, b, request())
}

// Fault 1: the attempt is given up while it waits in the server; its undo, in
// another session, waits for it instead of missing it.
func TestAnAttemptThatIsGivenUpLeavesNoLease(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	g, b := store(t, pool), open(t, pool, pglock.WithRaise())
	old := request()
	old.TTL = 10 * time.Millisecond
	token := acquire(t, b, old)
	tx := stale(t, g, guard.Fence{Resource: resource, Token: token, Nonce: old.Nonce})
	l := locker(t, b, lock.WithTTL(time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := l.Acquire(ctx, resource)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		s, err := l.TryAcquire(t.Context(), resource)
		return err == nil && s.Release(t.Context()) == nil
	}, within, 10*time.Millisecond, "the attempt that was given up holds the lock")
}

// However many acquisitions wait for a transaction of an earlier fence, a connection is
// left to renew what is held.
func TestAcquisitionsThatWaitLeaveAConnection(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := connect(t, url)
	g, b := store(t, pool), open(t, connect(t, url+"&pool_max_conns=2"), pglock.WithRaise())
	kept := request()
	acquire(t, b, kept)
	waiting := func(resource string) lock.Request {
		f := guard.Fence{Resource: resource, Token: 1, Nonce: "old"}
		require.NoError(t, g.Raise(t.Context(), f))
		stale(t, g, f)
		r := request()
		r.Resource = resource
		return r
	}
	first, second := waiting("first"), waiting("second")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := b.Acquire(ctx, first); failed <- err }()
	awaitGate(t, pool)
	brief, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	_, err := b.Acquire(brief, second)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "give the pool more of them")
	require.NoError(t, b.Renew(t.Context(), kept))
	require.NoError(t, b.Release(t.Context(), kept))
	require.Empty(t, failed, "all that while it waits")
	cancel()
	require.Error(t, <-failed)
	acquire(t, b, request())
}

// The undoing of an acquisition that was given up took the connection that is for
// renewals, for as long as another one waited.
func TestARefusedReleaseDoesNotWaitForTheAcquisitionOfAnother(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	g, b := store(t, pool), open(t, pool, pglock.WithRaise())
	old := guard.Fence{Resource: resource, Token: 1, Nonce: "old"}
	require.NoError(t, g.Raise(t.Context(), old))
	tx := stale(t, g, old)
	waits := make(chan error, 1)
	go func() { _, err := b.Acquire(t.Context(), request()); waits <- err }()
	awaitGate(t, pool)
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
	select {
	case err := <-waits:
		t.Fatal("the other one was to wait still", err)
	default:
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-waits)
}
