package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/stack"
	"github.com/go-fencing/fencing/integration/worker"
	"github.com/go-fencing/fencing/internal/history"
)

// S13: FLUSHALL takes a lock from a holder that is alive and well, and the counter
// with it.
func TestS13_FlushAllIsRepairedAndTheHolderRefused(t *testing.T) {
	t.Parallel()
	s := newSystem(t, stack.NewRedis(t))
	a, b := s.worker("a"), s.worker("b")
	for range 4 {
		s.warmUp(b, sku)
	}
	opA, there := a.hold(worker.Order{Resource: sku}, worker.Read)
	require.NoError(t, s.redis.Client().FlushAll(t.Context()).Err())
	require.Zero(t, s.counter(s.redis, sku))

	done := b.Do(worker.Order{Resource: sku})
	b.RequireOutcome(done, history.Committed)
	require.Equal(t, there.Fence.Token+1, done.Fence.Token, "repaired in one step")
	require.Equal(t, 1, s.journal.Events("repaired"))
	b.AwaitRefusal("stale")
	require.Contains(t, a.AwaitEvent("lost").Is, "lost", "the next renewal finds out")
	a.Go()
	a.RequireOutcome(a.Await(opA, worker.Done), history.Refused, "stale")
	require.Equal(t, done.Fence.Token, s.counter(s.redis, sku))
	s.warmUp(a, sku)
	require.Equal(t, 1, s.journal.Events("repaired"), "once is enough")
}

// S13: Redis crashes and comes back with an old file, so that it hands out the
// same tokens again.
func TestS13_RestartFromAnOldFileIsRepaired(t *testing.T) {
	t.Parallel()
	s := newSystem(t, stack.NewRedis(t))
	a, b := s.worker("a"), s.worker("b")
	s.warmUp(b, sku)
	require.NoError(t, s.redis.Client().Save(t.Context()).Err())
	s.warmUp(b, sku, sku)
	opA, there := a.hold(worker.Order{Resource: sku}, worker.Read)
	a.Stop()
	before := s.counter(s.redis, sku)
	s.redis.Kill()
	s.redis.Restart()
	require.Less(t, s.counter(s.redis, sku), before, "Redis has forgotten")

	done := b.Do(worker.Order{Resource: sku})
	b.RequireOutcome(done, history.Committed)
	require.Equal(t, there.Fence.Token+1, done.Fence.Token)
	require.Equal(t, 1, s.journal.Events("repaired"))
	require.NotEmpty(t, s.journal.SharedTokens(sku))
	a.RequireOutcome(a.goOn(opA), history.Refused, "stale")
}

// S40: Redis is new and Postgres is not, as after the loss of its disk or a move.
func TestS40_EmptyRedisIsRepairedInOneStep(t *testing.T) {
	t.Parallel()
	s := newSystem(t, stack.NewRedis(t))
	a := s.worker("a")
	s.warmUp(a, sku)
	s.must("UPDATE fencing.fence SET token = 5000000 WHERE resource = $1", sku) // of a Redis that has worked for years
	s.redis.Restore("")
	require.Zero(t, s.counter(s.redis, sku))
	done := a.Do(worker.Order{Resource: sku})
	a.RequireOutcome(done, history.Committed)
	require.EqualValues(t, 5000001, done.Fence.Token)
	require.Equal(t, 1, s.journal.Events("repaired"))
}

// S14: under memory pressure and a policy that evicts any key, Redis throws away
// the counter and the lock of a holder.
func TestS14_EvictedCounterIsRepaired(t *testing.T) {
	t.Parallel()
	s := newSystem(t, stack.NewRedis(t, "--maxmemory-policy", "allkeys-lru"))
	a, b := s.worker("a"), s.worker("b")
	s.warmUp(b, sku, sku)
	opA, there := a.hold(worker.Order{Resource: sku}, worker.Read)
	a.Stop()

	rdb := s.redis.Client()
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "3mb").Err())
	filler := strings.Repeat("x", 4<<10)
	for i := 0; s.counter(s.redis, sku) != 0; i++ {
		require.Less(t, i, 1000, "the counter is still there")
		for j := range 100 {
			require.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("cache:%d:%d", i, j), filler, 0).Err())
		}
	}
	evicted, err := rdb.Info(t.Context(), "stats").Result()
	require.NoError(t, err)
	require.NotContains(t, evicted, "evicted_keys:0\r\n")
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())

	done := b.Do(worker.Order{Resource: sku})
	b.RequireOutcome(done, history.Committed)
	require.Equal(t, there.Fence.Token+1, done.Fence.Token)
	require.Equal(t, 1, s.journal.Events("repaired"))
	a.RequireOutcome(a.goOn(opA), history.Refused, "stale")
}

// S21: the reply to an acquisition is lost, and the client asks again by itself.
func TestS21_LostReplyCostsNeitherTimeNorASecondToken(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	a := s.worker("a", func(c *worker.Config) { c.TTL = time.Minute })
	s.warmUp(a, sku) // Redis knows the script, and the client has a connection
	before := s.counter(s.redis, sku)
	a.redis.LoseReply("evalsha")
	done := a.Do(worker.Order{Resource: sku})
	require.Equal(t, 1, a.redis.Lost())
	a.RequireOutcome(done, history.Committed)
	require.Equal(t, before+1, done.Fence.Token)
	require.Equal(t, before+1, s.counter(s.redis, sku), "the second request was answered with the token of the first")
}

// S21: every reply is lost, so that the worker gives up, not knowing that it has
// the lock. That is undone in the background; others do not wait for the TTL.
func TestS21_AcquisitionWithoutAnyReplyIsUndone(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	long := func(c *worker.Config) { c.TTL = 10 * time.Minute }
	a, b := s.worker("a", long), s.worker("b", long)
	s.warmUp(a, sku)
	before := s.counter(s.redis, sku)
	a.redis.Silence()
	done := a.Do(worker.Order{Resource: sku, Patience: 3 * time.Second})
	a.RequireOutcome(done, history.Failed)
	require.NotZero(t, a.redis.Lost())
	require.Greater(t, s.counter(s.redis, sku), before, "it had the lock")
	a.redis.Heal()
	b.RequireOutcome(b.Do(worker.Order{Resource: sku}), history.Committed)
}

// A worker that is cut off from Redis loses its lease on time, by its own clock,
// and what it writes all the same is refused.
func TestS1_WorkerCutOffFromRedis(t *testing.T) {
	t.Parallel()
	for name, obedient := range map[string]bool{"and stops": true, "and goes on": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			a, b := s.worker("a"), s.worker("b")
			s.warmUp(b, sku)
			opA, _ := a.hold(worker.Order{Resource: sku, Obedient: obedient}, worker.Read)
			a.redis.Cut()
			b.RequireOutcome(b.Do(worker.Order{Resource: sku}), history.Committed)
			require.Contains(t, a.AwaitEvent("lost").Is, "lost", "while the link is still cut")
			a.Go()
			done := a.Await(opA, worker.Done)
			if obedient {
				a.RequireOutcome(done, history.Failed, "lost") // nothing was sent to Postgres
			} else {
				a.RequireOutcome(done, history.Refused, "stale")
			}
			a.redis.Heal()
			s.warmUp(a, sku)
		})
	}
}

// Redis hangs, with every connection open: all leases end on time, nobody gets a
// new one, and all goes on afterwards.
func TestS1_HungRedis(t *testing.T) {
	t.Parallel()
	s := newSystem(t, stack.NewRedis(t))
	a, b := s.worker("a"), s.worker("b")
	s.warmUp(b, sku)
	opA, _ := a.hold(worker.Order{Resource: sku, Obedient: true}, worker.Read)
	s.redis.Pause()
	done := b.Do(worker.Order{Resource: sku, Patience: time.Second})
	b.RequireOutcome(done, history.Failed)
	require.Contains(t, a.AwaitEvent("lost").Is, "lost", "while Redis still hangs")
	a.Go()
	a.RequireOutcome(a.Await(opA, worker.Done), history.Failed, "lost")
	s.redis.Resume()
	s.warmUp(a, sku)
	s.warmUp(b, sku)
}
