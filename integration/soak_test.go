package integration_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/stack"
	"github.com/go-fencing/fencing/integration/worker"
	"github.com/go-fencing/fencing/internal/history"
)

// seedEnv repeats the choices of an earlier run, though not its timing.
const seedEnv = "FENCING_TEST_SEED"

// Six workers on two resources, with pauses, kills, cuts, FLUSHALLs and ended
// backends at random; then the check.
func TestSoak(t *testing.T) {
	t.Parallel()
	length, limit := 20*time.Second, 2*time.Minute // the limit is for a machine that is too busy to see every fault
	if testing.Short() {
		length, limit = 5*time.Second, 5*time.Second
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(seedEnv), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	require.NoError(t, err, seedEnv)
	t.Logf("%s=%d", seedEnv, seed)

	s := newSystem(t, stack.NewRedis(t))
	s.TB = actor{t}
	k := &soak{system: s, resources: []string{sku, "inventory:sku-43"}, ended: make(chan struct{})}
	s.resources(k.resources[1:]...)
	var actors sync.WaitGroup
	for i := range 6 {
		actors.Go(func() { k.work(fmt.Sprintf("w%d", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	actors.Go(func() { k.interfere(rand.New(rand.NewPCG(seed, 1000))) })
	k.last(length, limit)
	close(k.ended)
	actors.Wait()
	if t.Failed() {
		return
	}
	after := *s // for this goroutine, whose failures may end the test
	after.TB = t
	after.warmUp(after.worker("last"), k.resources...) // life goes on

	t.Log(k.counts())
	if !testing.Short() {
		require.Empty(t, k.unseen())
	}
}

// An actor is the test as seen from another goroutine, which is what a failure ends.
type actor struct{ testing.TB }

func (a actor) FailNow() {
	a.Fail()
	runtime.Goexit()
}

type soak struct {
	*system
	resources []string
	ended     chan struct{}

	pauses, kills, cuts, losses, flushes, terminated atomic.Int32
}

// last returns after the least time, once everything was seen, or else after the
// longest.
func (k *soak) last(least, longest time.Duration) {
	limit := time.After(longest)
	<-time.After(least)
	for len(k.unseen()) > 0 && !k.Failed() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limit:
			return
		}
	}
}

func (k *soak) counts() string {
	j := k.journal
	return fmt.Sprintf("%d appends, %d refused, %d failed, %d unknown; %d repairs; %d pauses, %d kills, %d cuts, %d lost replies, %d FLUSHALLs, %d ended backends",
		j.Count(history.Committed), j.Count(history.Refused), j.Count(history.Failed), j.Count(history.Unknown),
		j.Events("repaired"), k.pauses.Load(), k.kills.Load(), k.cuts.Load(), k.losses.Load(), k.flushes.Load(), k.terminated.Load())
}

// unseen returns what has not happened yet, and without which the soak shows
// nothing.
func (k *soak) unseen() (what []string) {
	j := k.journal
	for name, n := range map[string]int{
		"an append": j.Count(history.Committed), "a refusal": j.Count(history.Refused), "an unknown outcome": j.Count(history.Unknown), "a repair": j.Events("repaired"),
		"a pause": int(k.pauses.Load()), "a kill": int(k.kills.Load()), "a cut": int(k.cuts.Load()), "a lost reply": int(k.losses.Load()),
		"a FLUSHALL": int(k.flushes.Load()), "an ended backend": int(k.terminated.Load()),
	} {
		if n == 0 {
			what = append(what, name)
		}
	}
	return what
}

// wait waits for d, or less at the end of the soak. It returns false then.
func (k *soak) wait(d time.Duration) bool {
	select {
	case <-k.ended:
		return false
	case <-time.After(d):
		return true
	}
}

// work drives one worker at a time, of which there may be several one after the
// other.
func (k *soak) work(name string, rng *rand.Rand) {
	config := func(c *worker.Config) { c.TTL, c.IdleTimeout = 700*time.Millisecond, time.Second }
	c := k.worker(name, config)
	for generation := 1; k.wait(time.Duration(rng.IntN(20)) * time.Millisecond); {
		o := worker.Order{
			Resource: k.resources[rng.IntN(len(k.resources))], Amount: 1 + rng.Int64N(100), Patience: 5 * time.Second,
			Obedient: rng.IntN(2) == 0, Single: rng.IntN(10) == 0,
		}
		at := worker.HoldingSteps[rng.IntN(len(worker.HoldingSteps))]
		pause := time.Duration(200+rng.IntN(1500)) * time.Millisecond // the TTL is in the middle
		switch dice := rng.IntN(100); {
		case dice < 25:
			k.pause(c, o, at, pause)
		case dice < 33:
			k.kills.Add(1)
			k.kill(c, o, at)
			generation++
			c = k.worker(fmt.Sprintf("%s.%d", name, generation), config)
		case dice < 38:
			before := c.postgres.Lost()
			c.postgres.LoseReply("commit") // of the raise or of the append
			c.Await(c.Append(o), worker.Done)
			k.losses.Add(int32(c.postgres.Lost() - before))
		case dice < 45:
			k.cuts.Add(1)
			op := c.Append(o)
			c.redis.Cut()
			k.wait(pause)
			c.redis.Heal()
			c.Await(op, worker.Done)
		default:
			c.Await(c.Append(o), worker.Done)
		}
	}
}

// reach waits until the append is at a step; false if it ended before.
func (k *soak) reach(c *contender, op string, at worker.Step) bool {
	r := c.AwaitReport(func(r worker.Report) bool { return r.Op == op && (r.Step == at || r.Step == worker.Done) }, "%s of %s", at, op)
	return r.Step == at
}

func (k *soak) pause(c *contender, o worker.Order, at worker.Step, d time.Duration) {
	o.Hold, o.Obedient = []worker.Step{at}, false
	op := c.Append(o)
	if k.reach(c, op, at) {
		k.pauses.Add(1)
		c.Stop()
		k.wait(d)
		c.Continue()
		c.Go()
		c.Await(op, worker.Done)
	}
}

func (k *soak) kill(c *contender, o worker.Order, at worker.Step) {
	o.Hold = []worker.Step{at}
	k.reach(c, c.Append(o), at)
	c.Kill()
}

// interfere breaks what the workers share.
func (k *soak) interfere(rng *rand.Rand) {
	rdb := k.system.redis.Client()
	for k.wait(time.Duration(500+rng.IntN(1000)) * time.Millisecond) {
		if rng.IntN(2) == 0 {
			require.NoError(k, rdb.FlushAll(k.Context()).Err())
			k.flushes.Add(1)
			continue
		}
		ended, err := k.pool.Exec(k.Context(), `
			SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			 WHERE datname = current_database() AND application_name LIKE 'w%' AND state IN ('active', 'idle in transaction') LIMIT 1`)
		require.NoError(k, err)
		k.terminated.Add(int32(ended.RowsAffected()))
	}
}
