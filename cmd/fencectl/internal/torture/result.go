package torture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/oracle"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/history"
)

// A Result is what a run has shown.
type Result struct {
	Seed    uint64   `json:"seed,string"` // a string, so that JavaScript cannot round it
	Seconds float64  `json:"seconds"`
	Servers []string `json:"servers"`
	LeftOut []Fault  `json:"left_out,omitempty"` // faults that cannot be caused on these servers

	Variants  []*Verdict     `json:"variants"`
	Witnesses map[string]int `json:"witnesses"` // that the faults have happened, in the guarded variants
	Faults    map[string]int `json:"faults"`
	Recovered float64        `json:"recovered"` // seconds after the last fault until every guarded worker had worked on every resource

	Clean       bool     `json:"clean"`       // no anomaly in a guarded variant
	Trustworthy bool     `json:"trustworthy"` // each control was caught, and each witness seen
	Doubts      []string `json:"doubts,omitempty"`

	incidents []Incident
	started   int64
}

// A Verdict is what became of one variant.
type Verdict struct {
	Variant    workload.Variant     `json:"variant"`
	Control    bool                 `json:"control"`
	Operations int                  `json:"operations"`
	Committed  int                  `json:"committed"`
	Refused    int                  `json:"refused"`
	Failed     int                  `json:"failed"`
	Unknown    int                  `json:"unknown"`
	Undecided  int                  `json:"undecided"` // resources on which porcupine ran out of time
	Anomalies  map[history.Kind]int `json:"anomalies"`
	Violations []history.Violation  `json:"violations,omitempty"` // the first ones of each kind
	told       oracle.Told
	state      oracle.State
	linear     []oracle.Linearization
	resourceOf func(op string) string
}

const shownOfEach = 3

// count sorts the violations by kind, and keeps the first of each.
func (v *Verdict) count() {
	v.Anomalies = make(map[history.Kind]int)
	v.Violations = slices.DeleteFunc(v.Violations, func(found history.Violation) bool {
		v.Anomalies[found.Kind]++
		return v.Anomalies[found.Kind] > shownOfEach
	})
}

// Caught reports whether the control has lost an update, and was seen to.
func (v *Verdict) Caught() bool { return v.Anomalies[history.LostUpdate] > 0 }

// The witnesses.
const (
	Regressions = "regressions"       // the sequencer had forgotten, and was repaired
	Duplicates  = "duplicate tokens"  // handed out to two acquisitions
	FencedOff   = "fenced writes"     // refused by the store, because a later holder was there
	Blocked     = "blocked raises"    // waited for a transaction of an earlier fence
	Ambiguous   = "ambiguous commits" // sent, and not answered
)

// Witnesses are all of them, in the order in which they are shown.
var Witnesses = []string{Regressions, Duplicates, FencedOff, Blocked, Ambiguous}

// witnesses counts what shows that the faults have hit the guarded variants.
func (r *run) witnesses() map[string]int {
	seen := make(map[string]int)
	for _, v := range workload.Guarded {
		_, reports := r.journals[v].all()
		seen[Regressions] += count(reports, func(r workload.Report) bool { return r.Event == "repaired" })
		seen[Duplicates] += oracle.SharedTokens(reports)
		seen[FencedOff] += count(reports, func(r workload.Report) bool { return r.Call == workload.CallCommit && r.Ended && is(r, "stale") })
		seen[Ambiguous] += ambiguous(reports)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen[Blocked] = 0
	for name := range r.blocked {
		if slices.ContainsFunc(workload.Guarded, func(v workload.Variant) bool { return strings.HasPrefix(name, r.clients()+slugs[v]+"-") }) {
			seen[Blocked]++
		}
	}
	return seen
}

// faults counts what has gone wrong on purpose.
func (r *run) faults() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	happened := make(map[string]int)
	for _, i := range r.incidents {
		name := string(i.What)
		if i.What == Struck {
			name = i.Who
		}
		happened[name]++
	}
	return happened
}

// ambiguous counts the commits that have no answer, or one that says so.
func ambiguous(reports []workload.Report) (n int) {
	open := make(map[string]bool) // operations whose rows are written
	for _, r := range reports {
		switch {
		case r.Step == workload.Written:
			open[r.Op] = true
		case r.Step == workload.Done && r.Outcome != history.Unknown:
			delete(open, r.Op)
		}
	}
	return len(open)
}

// conclude says whether the run is clean, and whether it is to be trusted.
func (res *Result) conclude() {
	res.Clean = true
	for _, v := range res.Variants {
		switch {
		case v.Control && !v.Caught():
			res.Doubts = append(res.Doubts, fmt.Sprintf("the control %q lost no update", v.Variant))
		case !v.Control && len(v.Anomalies) > 0:
			res.Clean = false
		case !v.Control && v.Undecided > 0:
			res.Doubts = append(res.Doubts, fmt.Sprintf("porcupine ran out of time on %d resources of %s", v.Undecided, v.Variant))
		}
		if !v.Control && v.Committed == 0 {
			res.Doubts = append(res.Doubts, fmt.Sprintf("%s committed nothing", v.Variant))
		}
	}
	for _, w := range Witnesses {
		if res.Witnesses[w] == 0 {
			res.Doubts = append(res.Doubts, "no "+w+" were seen")
		}
	}
	res.Trustworthy = len(res.Doubts) == 0
}
