package integration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/worker"
	"github.com/go-fencing/fencing/internal/history"
)

// Negative controls: the same schedules without a part of the protection. Each must
// end in a history that the check calls broken, or the check is not to be trusted.

func mode(m worker.Mode) func(*worker.Config) { return func(c *worker.Config) { c.Mode = m } }

// s1 is the schedule of S1: A has read and pauses, B does all of its work, A goes
// on.
func (s *system) s1(m worker.Mode) (a, b worker.Report) {
	s.Helper()
	workerA, workerB := s.worker("a", mode(m)), s.worker("b", mode(m))
	s.warmUp(workerB, sku)
	op, _ := workerA.hold(worker.Order{Resource: sku}, worker.Read)
	workerA.Stop()
	b = workerB.Do(worker.Order{Resource: sku})
	return workerA.goOn(op), b
}

// s2 is the schedule of S2: A has read and pauses, B reads, A goes on, B goes on.
func (s *system) s2(m worker.Mode) (a, b worker.Report) {
	s.Helper()
	workerA, workerB := s.worker("a", mode(m)), s.worker("b", mode(m))
	s.warmUp(workerB, sku)
	opA, _ := workerA.hold(worker.Order{Resource: sku}, worker.Read)
	workerA.Stop()
	opB, _ := workerB.hold(worker.Order{Resource: sku}, worker.Read)
	a = workerA.goOn(opA)
	workerB.Go()
	return a, workerB.Await(opB, worker.Done)
}

func TestControl_S1_UnguardedWriterLosesAnUpdate(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.broken = []history.Kind{history.LostUpdate, history.Balance, history.TokenOrder}
	a, b := s.s1(worker.Unguarded)
	require.Equal(t, history.Committed, a.Outcome, a.Error)
	require.Equal(t, history.Committed, b.Outcome, b.Error)
	require.Less(t, a.Fence.Token, b.Fence.Token)
}

func TestControl_S1_RowRuleStopsTheLateWriter(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	a, b := s.s1(worker.RowRule)
	require.Equal(t, history.Refused, a.Outcome, a.Error)
	require.Equal(t, history.Committed, b.Outcome, b.Error)
}

func TestControl_S2_WithoutTheFenceTheReadWindowLosesAnUpdate(t *testing.T) {
	t.Parallel()
	for _, m := range []worker.Mode{worker.Unguarded, worker.RowRule, worker.WriteOnly} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.broken = []history.Kind{history.LostUpdate, history.Balance}
			a, b := s.s2(m)
			require.Equal(t, history.Committed, a.Outcome, a.Error)
			require.Equal(t, history.Committed, b.Outcome, b.Error)
		})
	}
}

// Without the gate a check at the start of the transaction is over by the time of
// the write: the schedule of S3.
func TestControl_S3_WithoutTheGateTheCheckIsTooEarly(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.weaken("fencing.enter(text,bigint,text,integer)", "OR pg_advisory_xact_lock_shared(hashtextextended(p_resource, 5070437)) IS NULL", "")
	s.broken = []history.Kind{history.LostUpdate, history.Balance, history.TokenOrder}
	a, b := s.worker("a"), s.worker("b")
	s.warmUp(b, sku)
	op, _ := a.hold(worker.Order{Resource: sku}, worker.Entered)
	a.Stop()
	b.RequireOutcome(b.Do(worker.Order{Resource: sku}), history.Committed)
	a.RequireOutcome(a.goOn(op), history.Committed)
}

// weaken replaces a part of one function of the fence schema.
func (s *system) weaken(function, part, with string) {
	s.Helper()
	var text string
	require.NoError(s, s.pool.QueryRow(s.Context(), "SELECT pg_get_functiondef($1::regprocedure)", function).Scan(&text))
	require.Equal(s, 1, strings.Count(text, part), "%s is not what this test was written for", function)
	s.must(strings.Replace(text, part, with, 1))
}
