package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/stack"
	"github.com/go-fencing/fencing/integration/worker"
	"github.com/go-fencing/fencing/internal/history"
)

// newSplit puts a system on a Redis with a replica that has everything up to now
// and gets nothing more.
func newSplit(t *testing.T) (s *system, replica *stack.Replica, a, b *contender) {
	t.Helper()
	s = newSystem(t, stack.NewRedis(t))
	replica = s.redis.Replica()
	a, b = s.worker("a"), s.worker("b")
	s.warmUp(b, sku)
	replica.AwaitSame(s.redis, s.keys().Counter(sku))
	replica.CutLink()
	return s, replica, a, b
}

// S9: a master dies with grants that its replica never saw, and the replica hands
// out their tokens again.
func TestS9_FailoverHandsOutATokenTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at      worker.Step
		outcome history.Outcome
	}{
		"the earlier holder raised first": {worker.Read, history.Refused},
		"the later holder raised first":   {worker.Granted, history.Committed}, // after it has acquired again
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, replica, a, b := newSplit(t)
			opA, there := a.hold(worker.Order{Resource: sku}, c.at)
			a.Stop()
			require.Less(t, s.counter(replica.Redis, sku), there.Fence.Token, "the replica has not seen it")
			s.redis.Kill()
			replica.Promote()
			a.redis.Retarget(replica.Addr())
			b.redis.Retarget(replica.Addr())

			opB := b.Append(worker.Order{Resource: sku})
			granted := b.Await(opB, worker.Granted)
			require.Equal(t, there.Fence.Token, granted.Fence.Token, "one token, two holders")
			require.NotEqual(t, there.Fence.Nonce, granted.Fence.Nonce)
			done := b.Await(opB, worker.Done)
			b.RequireOutcome(done, history.Committed)
			require.Contains(t, s.journal.SharedTokens(sku), there.Fence.Token)

			late := a.goOn(opA)
			a.RequireOutcome(late, c.outcome)
			loser := a
			if c.at == worker.Read {
				a.RequireOutcome(late, c.outcome, "stale")
				require.Equal(t, there.Fence.Token+1, done.Fence.Token)
				require.Equal(t, 1, s.journal.Events("repaired"))
				loser = b
			}
			loser.AwaitRefusal("conflict")
		})
	}
}

// S7: a holder of the lost master raises its fence late, above that of the holder
// who has the lock by now. The late one wins; nothing is lost.
func TestS7_LateRaiseOfALostMaster(t *testing.T) {
	t.Parallel()
	s, replica, a, b := newSplit(t)
	// Tokens of other resources on that counter, which the replica never saw.
	require.NoError(t, s.redis.Client().IncrBy(t.Context(), s.keys().Counter(sku), 30).Err())
	opA, late := a.hold(worker.Order{Resource: sku}, worker.Granted)
	a.Stop()
	s.redis.Kill()
	replica.Promote()
	a.redis.Retarget(replica.Addr())
	b.redis.Retarget(replica.Addr())

	opB, there := b.hold(worker.Order{Resource: sku}, worker.Read)
	require.Less(t, there.Fence.Token, late.Fence.Token)
	require.Equal(t, there.Fence.Token, s.fence(sku))
	a.Continue()
	a.Go()
	require.Equal(t, late.Fence.Token, a.Await(opA, worker.Raised).Fence.Token)
	require.Equal(t, late.Fence.Token, s.fence(sku), "raised by a holder whose lock is long gone")
	b.Go()
	b.RequireOutcome(b.Await(opB, worker.Done), history.Refused, "stale")
	b.Await(opB, worker.Released)

	again := b.Do(worker.Order{Resource: sku})
	require.NotZero(t, s.journal.Events("repaired"), "the new master has learned of it")
	for _, done := range []worker.Report{again, a.Await(opA, worker.Done)} {
		require.Contains(t, []history.Outcome{history.Committed, history.Refused}, done.Outcome, done.Error)
		require.GreaterOrEqual(t, done.Fence.Token, late.Fence.Token)
	}
}

// S11: the old master and the promoted replica both go on, each for one worker.
// They hand out the same tokens, and the two workers meet at the fence only.
func TestS11_SplitBrain(t *testing.T) {
	t.Parallel()
	s, replica, a, b := newSplit(t)
	replica.Promote()
	b.redis.Retarget(replica.Addr())

	for range 3 { // each is overtaken after its read by the other, who has the lock too
		for _, pair := range [][2]*contender{{a, b}, {b, a}} {
			slow, fast := pair[0], pair[1]
			op, _ := slow.hold(worker.Order{Resource: sku}, worker.Read)
			fast.RequireOutcome(fast.Do(worker.Order{Resource: sku}), history.Committed)
			slow.Go()
			slow.RequireOutcome(slow.Await(op, worker.Done), history.Refused, "stale")
			slow.Await(op, worker.Released)
		}
	}
	for range 10 { // both at once, however they meet
		ops := map[*contender]string{a: a.Append(worker.Order{Resource: sku, Obedient: true}), b: b.Append(worker.Order{Resource: sku, Obedient: true})}
		for c, op := range ops {
			if done := c.Await(op, worker.Done); done.Outcome == history.Committed {
				c.Await(op, worker.Released)
			}
		}
	}
	t.Logf("%d appends, %d refused, %d repairs, %d tokens of both masters", s.journal.Count(history.Committed),
		s.journal.Count(history.Refused), s.journal.Events("repaired"), len(s.journal.SharedTokens(sku)))
	require.NotEmpty(t, s.journal.SharedTokens(sku), "both masters have handed out one token")
	require.NotZero(t, s.journal.Events("repaired"))
}
