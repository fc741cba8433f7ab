package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/integration/stack"
	"github.com/go-fencing/fencing/integration/worker"
	"github.com/go-fencing/fencing/internal/history"
)

func shortIdle(c *worker.Config) { c.IdleTimeout = time.Second }

// What a holder that paused may come to, by the step at which it paused for so long
// that another one has taken over and finished. Before its first read it may just
// as well acquire again.
var afterPause = map[worker.Step][]history.Outcome{
	worker.Granted: {history.Committed},                  // its fence is refused: it acquires again
	worker.Raised:  {history.Committed, history.Refused}, // by whether its locker or Postgres notices first
	worker.Leased:  {history.Refused},
	worker.Read:    {history.Refused},
	worker.Entered: {history.Failed}, // the server has ended its transaction, for another to go on
	worker.Written: {history.Failed},
}

func TestS1_HolderPausedAnywhereIsRefusedOnceAnotherHasWorked(t *testing.T) {
	t.Parallel()
	meanwhile := map[string]struct {
		forgets bool // Redis does, so that it hands out tokens again
		prepare func(t *testing.T) (s *system, happens func(b *contender))
	}{
		"its lease expires": {false, func(t *testing.T) (*system, func(*contender)) {
			return newSystem(t), func(*contender) {}
		}},
		"S13 FLUSHALL": {true, func(t *testing.T) (*system, func(*contender)) {
			s := newSystem(t, stack.NewRedis(t))
			return s, func(*contender) { require.NoError(t, s.redis.Client().FlushAll(t.Context()).Err()) }
		}},
		"S9 a replica is promoted": {true, func(t *testing.T) (*system, func(*contender)) {
			s := newSystem(t, stack.NewRedis(t))
			replica := s.redis.Replica()
			replica.CutLink()
			return s, func(b *contender) {
				replica.Promote()
				b.redis.Retarget(replica.Addr())
			}
		}},
	}
	for name, m := range meanwhile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, happens := m.prepare(t)
			b := s.worker("b")
			paused := make(map[worker.Step]*contender)
			ops := make(map[worker.Step]string)
			for _, at := range worker.HoldingSteps {
				s.resources(string(at))
				s.warmUp(b, string(at))
				a := s.worker("a-"+string(at), shortIdle)
				ops[at], _ = a.hold(worker.Order{Resource: string(at)}, at)
				a.Stop()
				paused[at] = a
			}
			happens(b)
			for at, op := range ops {
				done := b.Do(worker.Order{Resource: string(at)})
				b.RequireOutcome(done, history.Committed)
				require.NotEqual(t, op, s.previous(done.Op), "paused at %s: it was ahead of its fence", at)
			}
			var twice []guard.Token
			for at, a := range paused {
				done := a.goOn(ops[at])
				require.Contains(t, afterPause[at], done.Outcome, "paused at %s: %s", at, done.Error)
				switch done.Outcome {
				case history.Committed:
					require.Greater(t, done.Fence.Token, a.Await(ops[at], worker.Granted).Fence.Token, "it has acquired again")
				case history.Refused:
					require.Contains(t, done.Is, "stale", done.Error)
				}
				if at == worker.Granted {
					a.AwaitRefusal("stale")
				}
				twice = append(twice, s.journal.SharedTokens(string(at))...)
			}
			require.Equal(t, m.forgets, len(twice) > 0, "tokens that were handed out twice: %v", twice)
		})
	}
}

// S2: the window between the reads of two holders. B has raised before it read, so
// that A, which nobody has overtaken at the table yet, is refused already.
func TestS2_HolderIsRefusedAsSoonAsAnotherHasRead(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	a, b := s.worker("a"), s.worker("b")
	s.warmUp(b, sku)
	opA, _ := a.hold(worker.Order{Resource: sku}, worker.Read)
	a.Stop()
	opB, _ := b.hold(worker.Order{Resource: sku}, worker.Read)
	a.RequireOutcome(a.goOn(opA), history.Refused, "stale")
	b.Go()
	b.RequireOutcome(b.Await(opB, worker.Done), history.Committed)
}

// S4: a transaction that has entered in time may commit late, and is then read by
// the holder that had to wait for it.
func TestS4_LateCommitComesBeforeTheNextRead(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	// On a busy machine neither A's transaction nor B's wait for it may be ended.
	patient := func(c *worker.Config) { c.LockTimeout, c.IdleTimeout = 2*soon, soon }
	a, b := s.worker("a", patient), s.worker("b", patient)
	s.warmUp(b, sku)
	opA, _ := a.hold(worker.Order{Resource: sku}, worker.Written)
	a.Stop()
	opB := b.Append(worker.Order{Resource: sku})
	b.Await(opB, worker.Granted)
	s.awaitRaiseBlocked(b)
	a.RequireOutcome(a.goOn(opA), history.Committed)
	b.RequireOutcome(b.Await(opB, worker.Done), history.Committed)
	require.Equal(t, opA, s.previous(opB))
	require.Contains(t, a.Await(opA, worker.Released).Is, "lost", "it committed after its lease had ended")
}

// S27: a holder that lost its lease neither frees its successor's lock nor brings
// back its own.
func TestS27_LateHolderLeavesItsSuccessorsLockAlone(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	a, b := s.worker("a"), s.worker("b", func(c *worker.Config) { c.TTL = 20 * time.Second }) // B must not lose its lease on a busy machine
	s.warmUp(b, sku)
	opA, _ := a.hold(worker.Order{Resource: sku}, worker.Read)
	a.Stop()
	opB, there := b.hold(worker.Order{Resource: sku}, worker.Read)
	nonce := func() string {
		value, err := s.redis.Client().Get(t.Context(), s.keys().Lock(sku)).Result()
		require.NoError(t, err)
		state, _, _ := strings.Cut(value, "\n")
		require.NotContains(t, state, "fencing free ")
		return state[strings.LastIndex(state, " ")+1:]
	}
	require.Equal(t, there.Fence.Nonce, nonce())
	a.RequireOutcome(a.goOn(opA), history.Refused, "stale")
	require.Contains(t, a.Await(opA, worker.Released).Is, "lost")
	require.Equal(t, there.Fence.Nonce, nonce(), "the lock is still its successor's")

	b.Go()
	b.RequireOutcome(b.Await(opB, worker.Done), history.Committed)
	require.Empty(t, b.Await(opB, worker.Released).Error)
	left, err := s.redis.Client().Get(t.Context(), s.keys().Lock(sku)).Result()
	require.NoError(t, err)
	require.Equal(t, "fencing free "+there.Fence.Nonce+"\n", left)
	// A works on: if it renewed what it has lost, the lock would not be free.
	b.RequireOutcome(a.Do(worker.Order{Resource: sku}), history.Committed)
	b.RequireOutcome(b.Do(worker.Order{Resource: sku}), history.Committed)
}
