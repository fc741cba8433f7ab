package torture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

// A Fault is something that goes wrong on purpose.
type Fault string

// The faults. The first ones happen to a worker, Forget and Terminate to what is of
// this run on the servers, the last ones to servers that nobody else uses.
const (
	Pause     Fault = "pause"     // SIGSTOP, at a step or at any time
	Kill      Fault = "kill"      // SIGKILL, at a step or at any time
	Cut       Fault = "cut"       // a link to Redis or Postgres stops forwarding
	Reply     Fault = "reply"     // replies are lost: of a commit, or all of Redis
	Forget    Fault = "forget"    // Redis goes back to an earlier token, and the lock is gone
	Terminate Fault = "terminate" // pg_terminate_backend
	Flush     Fault = "flush"     // FLUSHALL
	Snapshot  Fault = "snapshot"  // Redis is killed and comes back from an old RDB file
	Promote   Fault = "promote"   // a replica behind a cut link is promoted; the old master works on for a while
	Crash     Fault = "crash"     // Postgres is killed and recovers
	Clock     Fault = "clock"     // the clock of Redis jumps
)

var (
	// Faults are all of them.
	Faults = []Fault{Pause, Kill, Cut, Reply, Forget, Terminate, Flush, Snapshot, Promote, Crash, Clock}

	// shared are those that happen to all variants at once.
	shared = []Fault{Terminate, Flush, Snapshot, Promote, Crash, Clock}
)

// ParseFaults reads a list with commas. "all" and "none" are what they say.
func ParseFaults(list string) (faults []Fault, err error) {
	switch list {
	case "all":
		return Faults, nil
	case "none":
		return nil, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		f := Fault(strings.TrimSpace(name))
		if !slices.Contains(Faults, f) {
			return nil, fmt.Errorf("%q is no fault; name some of %s, or all, or none", name, join(Faults))
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Options are what a run is made of.
type Options struct {
	Seed   uint64
	Length time.Duration // until no new operation is begun
	Faults []Fault

	Redis    *target.Redis    // nil: private servers
	Postgres *target.Postgres // nil: a private server

	Worker   []string // program and arguments that call workload.Work
	Progress func(Status)
}

// The bounds of Options.Length.
const (
	MinLength = time.Second
	MaxLength = 24 * time.Hour
)

// A Status is how far a run has come.
type Status struct {
	Elapsed, Length time.Duration
	Operations      int
	Committed       int
	Refused         int
	Faults          int
	Phase           string
}

func join[T ~string](names []T) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = string(n)
	}
	return strings.Join(all, ", ")
}
