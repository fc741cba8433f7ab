package torture

import (
	"math/rand/v2"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
)

const (
	ttl         = 600 * time.Millisecond
	lockTimeout = 3 * time.Second
	idleTimeout = 2 * time.Second // of a transaction: after that the server ends it

	resourcesEach = 3 // of a variant; the first one is for traps alone
)

// A trap is a schedule of two workers on one resource in which a part of the
// protection decides: A gets to a step and is frozen until its lease has ended, B
// works, A wakes up and goes on.
type trap struct {
	name   string
	at     workload.Step // where A is frozen
	reads  bool          // B stops after its read, and goes on only after A
	forget bool          // Redis hands out A's token again
	repeat bool          // A raises again before it writes
}

// traps has one for every negative control at least. The numbers are those of the
// scenarios that the tests of this repository are named after.
var traps = []trap{
	{name: "S1 late write", at: workload.Read},
	{name: "S2 read window", at: workload.Read, reads: true},
	{name: "S3 late write after the check", at: workload.Entered},
	{name: "S4 late commit", at: workload.Written},
	{name: "S7 late raise", at: workload.Granted},
	{name: "S9 token handed out twice", at: workload.Read, forget: true},
	{name: "S22 token handed out twice, raise repeated", at: workload.Read, forget: true, repeat: true},
}

// A round is what the two workers of a variant do next.
type round struct {
	trap *trap // nil: each of them goes on its errand
	a, b errand
	gap  time.Duration // for A to be ahead, or for B to finish before A wakes up
}

// An errand is one operation and what goes wrong with it.
type errand struct {
	kind     workload.Kind
	resource int
	also     bool // the other resource too
	amount   int64
	way      workload.Way
	obedient bool

	fault fault
	at    workload.Step
	after time.Duration // for a fault that comes at any time
	pause time.Duration
}

type fault string

const (
	nothing     fault = ""
	pauseAt     fault = "frozen at a step"
	pauseAnyway fault = "frozen at any time"
	killAt      fault = "killed at a step"
	killAnyway  fault = "killed at any time"
	loseCommit  fault = "reply to the commit lost"
	cutRedis    fault = "cut off from Redis"
	cutPostgres fault = "cut off from Postgres"
	loseRedis   fault = "replies of Redis lost"
)

// needs says which of the faults that can be asked for it belongs to.
func (f fault) needs() Fault {
	switch f {
	case pauseAt, pauseAnyway:
		return Pause
	case killAt, killAnyway:
		return Kill
	case loseCommit, loseRedis:
		return Reply
	case cutRedis, cutPostgres:
		return Cut
	}
	return ""
}

// odds has each fault as often as it is to be drawn.
var odds = []struct {
	fault fault
	in100 int
}{{nothing, 50}, {pauseAt, 12}, {pauseAnyway, 8}, {killAt, 5}, {killAnyway, 4}, {loseCommit, 8}, {cutRedis, 5}, {cutPostgres, 4}, {loseRedis, 4}}

// A schedule draws the rounds of a variant. It draws as many numbers for every round,
// whatever comes of it, so that a seed always leads to the same ones.
type schedule struct {
	rng   *rand.Rand
	first []int // the traps of the first rounds
	traps int   // of 100 rounds
	drawn int
}

// newSchedule draws from a stream of the seed. A control, which has to be caught, gets
// into traps more often.
func newSchedule(seed, stream uint64, guarded bool) *schedule {
	rng := rand.New(rand.NewPCG(seed, stream))
	s := &schedule{rng: rng, first: rng.Perm(len(traps)), traps: 70}
	if guarded {
		s.traps = 40
	}
	return s
}

// next draws the next round. Every trap comes once in the first rounds, for each
// control to be caught in a short run already.
func (s *schedule) next() round {
	r := round{a: s.errand(), b: s.errand(), gap: s.between(0, 300*time.Millisecond)}
	which, sets, patient := s.rng.IntN(len(traps)), s.rng.IntN(100) < s.traps, s.rng.IntN(3) > 0
	if s.drawn < len(s.first) {
		which, sets, patient = s.first[s.drawn], true, true
	}
	s.drawn++
	if sets {
		r.trap = &traps[which]
		// In two of three cases B may take as long as it needs; in the others A wakes
		// up while B is in the middle.
		r.gap += ttl
		if patient {
			r.gap = 4 * time.Second
		}
	}
	return r
}

func (s *schedule) errand() errand {
	e := errand{
		kind:     workload.Kinds[s.rng.IntN(len(workload.Kinds))],
		resource: s.rng.IntN(resourcesEach - 1),
		also:     s.rng.IntN(8) == 0,
		amount:   1 + s.rng.Int64N(100),
		way:      workload.Ways[s.rng.IntN(len(workload.Ways))],
		obedient: s.rng.IntN(2) == 0,
		at:       workload.HoldingSteps[s.rng.IntN(len(workload.HoldingSteps))],
		after:    s.between(0, 60*time.Millisecond),
		pause:    s.between(ttl/4, 3*ttl),
	}
	dice := s.rng.IntN(100)
	for _, o := range odds {
		if dice -= o.in100; dice < 0 {
			e.fault = o.fault
			break
		}
	}
	if e.way == workload.Single && (e.kind != workload.Append || e.also || e.fault == loseCommit) {
		e.way = workload.Plain
	}
	if e.at == workload.Between && e.kind != workload.Transfer {
		e.at = workload.Read
	}
	return e
}

func (s *schedule) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)))
}

// A strike is a fault that all share.
type strike struct {
	fault  Fault
	wait   time.Duration // before it
	length time.Duration // of what is between its parts
	step   time.Duration // of the clock
}

// newStrikes draws each fault once, in some order, and then again.
func newStrikes(seed uint64) func() strike {
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	var order []int
	return func() strike {
		if len(order) == 0 {
			order = rng.Perm(len(shared))
		}
		s := strike{
			fault:  shared[order[0]],
			wait:   time.Duration(600+rng.IntN(1200)) * time.Millisecond,
			length: time.Duration(300+rng.IntN(900)) * time.Millisecond,
			step:   []time.Duration{-2 * time.Second, 2 * time.Second, 3 * time.Second}[rng.IntN(3)],
		}
		order = order[1:]
		return s
	}
}
