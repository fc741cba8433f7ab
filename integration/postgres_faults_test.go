package integration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/stack"
	"github.com/go-fencing/fencing/integration/worker"
	"github.com/go-fencing/fencing/internal/history"
)

// S5: a stale transaction sits idle with the gate. The server ends it in time for
// the next holder.
func TestS5_IdleStaleTransactionIsEndedByTheServer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	// Long enough to see B wait: it begins to when A's lease has run out.
	a, b := s.worker("a", func(c *worker.Config) { c.IdleTimeout = 8 * time.Second }), s.worker("b", func(c *worker.Config) { c.LockTimeout = soon })
	s.warmUp(b, sku)
	opA, _ := a.hold(worker.Order{Resource: sku}, worker.Written)
	a.Stop()
	opB := b.Append(worker.Order{Resource: sku})
	s.awaitRaiseBlocked(b)
	b.RequireOutcome(b.Await(opB, worker.Done), history.Committed)
	a.RequireOutcome(a.goOn(opA), history.Failed)
}

// S5: a stale transaction that works and does not end: the raise gives up and says
// which backend is in the way.
func TestS5_BlockedRaiseNamesTheTransactionInTheWay(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	a := s.worker("a")
	b := s.worker("b", func(c *worker.Config) { c.LockTimeout, c.IdleTimeout = time.Second, 500*time.Millisecond })
	s.warmUp(b, sku)
	unlock := s.lockBalance(sku)
	opA := a.Append(worker.Order{Resource: sku})
	entered := a.Await(opA, worker.Entered)
	s.awaitLock(a, "transactionid")
	a.Stop()

	blocked := b.Do(worker.Order{Resource: sku})
	b.RequireOutcome(blocked, history.Failed, "blocked")
	require.EqualValues(t, entered.Backend, blocked.BlockedBy)
	s.must("SELECT pg_terminate_backend($1)", blocked.BlockedBy)
	unlock()
	b.RequireOutcome(b.Do(worker.Order{Resource: sku}), history.Committed)
	a.Continue()
	a.RequireOutcome(a.Await(opA, worker.Done), history.Failed)
}

// lockBalance keeps a balance from being written until unlock is called.
func (s *system) lockBalance(resource string) (unlock func()) {
	s.Helper()
	tx, err := s.pool.Begin(s.Context())
	require.NoError(s, err)
	s.Cleanup(func() { _ = tx.Rollback(s.Context()) }) // if the test did not get to unlock
	_, err = tx.Exec(s.Context(), "SELECT FROM balance WHERE resource = $1 FOR UPDATE", resource)
	require.NoError(s, err)
	return func() { require.NoError(s, tx.Rollback(s.Context())) }
}

// S6: a worker is killed while its statement waits in the server, which carries it
// out later, for a dead client. The next holder waits for that and reads it.
func TestS6_WriteOfADeadWorkerIsOrderedBeforeItsSuccessor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		single  bool
		applied bool
	}{
		"a statement of its own is committed": {single: true, applied: true},
		"a transaction is rolled back":        {single: false, applied: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			a, b := s.worker("a"), s.worker("b")
			s.warmUp(b, sku)
			unlock := s.lockBalance(sku)
			opA := a.Append(worker.Order{Resource: sku, Single: c.single})
			s.awaitLock(a, "transactionid")
			a.Kill()
			opB := b.Append(worker.Order{Resource: sku})
			s.awaitRaiseBlocked(b)
			require.False(t, s.written(opA))
			unlock()
			b.RequireOutcome(b.Await(opB, worker.Done), history.Committed)
			require.Equal(t, c.applied, s.written(opA), "after the death of its worker")
			if c.applied {
				require.Equal(t, opA, s.previous(opB))
			}
		})
	}
}

// A backend is ended in mid-transaction; the worker knows that nothing was written.
func TestTerminatedBackendWritesNothing(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	a := s.worker("a")
	s.warmUp(a, sku)
	for _, at := range []worker.Step{worker.Entered, worker.Written} {
		op, there := a.hold(worker.Order{Resource: sku}, at)
		s.must("SELECT pg_terminate_backend($1)", there.Backend)
		s.await("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1", there.Backend)
		a.Go()
		a.RequireOutcome(a.Await(op, worker.Done), history.Failed)
		s.warmUp(a, sku)
	}
}

// Postgres crashes in the middle of everything. What was raised is still raised,
// also where commits are not waited for: with these settings nothing else reaches
// the disk within ten seconds.
func TestPostgresCrashKeepsTheFences(t *testing.T) {
	t.Parallel()
	s := newSystem(t, stack.NewPostgres(t, "wal_writer_delay=10s", "synchronous_commit=off"))
	s.resources("other")
	a, b, c := s.worker("a"), s.worker("b"), s.worker("c")
	s.warmUp(b, sku, "other")
	opA, _ := a.hold(worker.Order{Resource: sku}, worker.Read)
	a.Stop()
	opC, _ := c.hold(worker.Order{Resource: "other"}, worker.Written)
	opB, raised := b.hold(worker.Order{Resource: sku}, worker.Leased) // the fence is all that it has written
	started := s.started()
	s.postgres.Kill()
	s.postgres.Restart()
	s.awaitPool()
	require.NotEqual(t, started, s.started())
	require.Equal(t, raised.Fence.Token, s.fence(sku))

	c.Go()
	c.RequireOutcome(c.Await(opC, worker.Done), history.Failed)
	a.RequireOutcome(a.goOn(opA), history.Refused, "stale")
	b.Go()
	b.RequireOutcome(b.Await(opB, worker.Done), history.Committed)
	b.Await(opB, worker.Released)
	s.warmUp(a, sku, "other")
}

func (s *system) started() (at time.Time) {
	s.Helper()
	require.NoError(s, s.pool.QueryRow(s.Context(), "SELECT pg_postmaster_start_time()").Scan(&at))
	return at
}

// awaitPool waits until the test's own pool has got over a restart of the server.
func (s *system) awaitPool() {
	s.Helper()
	s.await("SELECT true")
	s.pool.Reset()
}

// S39: Postgres is restored to an earlier time, first without Redis and then with
// it. A holder whose fence the database has forgotten is refused, not let in, and
// so is one whose token has been given to another since.
func TestS39_RestoredPostgresRefusesFencesThatItHasForgotten(t *testing.T) {
	t.Parallel()
	s := newSystem(t, stack.NewPostgres(t), stack.NewRedis(t))
	first, second, b := s.worker("first"), s.worker("second"), s.worker("b")
	s.warmUp(b, sku, sku)
	kept := s.fence(sku)
	require.NoError(t, s.redis.Client().Save(t.Context()).Err())
	redis, postgres := s.redis.Snapshot(), s.postgres.Snapshot()
	s.awaitPool()

	opFirst, atFirst := first.hold(worker.Order{Resource: sku}, worker.Read)
	first.Stop()
	require.Equal(t, kept+1, atFirst.Fence.Token)
	lost := b.Do(worker.Order{Resource: sku})
	b.RequireOutcome(lost, history.Committed)
	opSecond, atSecond := second.hold(worker.Order{Resource: sku}, worker.Read)
	require.Equal(t, atSecond.Fence.Token, s.fence(sku))

	s.postgres.Restore(postgres)
	s.awaitPool()
	s.journal.Forget(lost.Op)
	require.Equal(t, kept, s.fence(sku), "the database has forgotten")
	second.Go()
	second.RequireOutcome(second.Await(opSecond, worker.Done), history.Refused, "not raised")
	second.Await(opSecond, worker.Released)
	lost = b.Do(worker.Order{Resource: sku})
	b.RequireOutcome(lost, history.Committed)
	require.Greater(t, lost.Fence.Token, atSecond.Fence.Token, "work goes on at once: Redis is ahead")
	require.Zero(t, s.journal.Events("repaired"))

	s.redis.Restore(redis)
	s.postgres.Restore(postgres)
	s.awaitPool()
	s.journal.Forget(lost.Op)
	done := b.Do(worker.Order{Resource: sku})
	b.RequireOutcome(done, history.Committed)
	require.Equal(t, atFirst.Fence.Token, done.Fence.Token, "one token, two holders, both of whom had raised it")
	first.RequireOutcome(first.goOn(opFirst), history.Refused, "conflict")
}
