// Package metrics says what the adapters of package guard measure: one list of
// names and one reading of events, so that a dashboard for one of them is right for
// the other.
package metrics

import "strings"

// A Counter counts. Its series are told apart by the values of one label, or it has
// one alone. Resources are no label: there may be millions.
type Counter int

// The counters.
const (
	Acquisitions Counter = iota
	WaitsGivenUp
	Regressions
	Renewals
	Rejections
	Unguarded
	LeasesLost
	Releases
	counters
)

// A Histogram measures seconds.
type Histogram int

// The histograms.
const (
	LockWait Histogram = iota
	RaiseWait
	RemainingAtCommit
	RemainingAtRelease
	histograms
)

// A Description is what the outside sees of a metric.
type Description struct {
	Name   string // in OpenTelemetry; see Prometheus
	Help   string
	Unit   string // in OpenTelemetry
	Label  string
	Values []string  // of the label, in the order of the index that a Sink is given
	Bounds []float64 // of the buckets
}

// The values of the labels. A Sink is given their index.
const (
	reasonStale = iota
	reasonConflict
	reasonNotRaised
	reasonNoFence
	reasonBlocked
	reasonCommitUnknown
	reasonUnguarded
	reasonOther
)

const (
	acquiredOK = iota
	acquiredHeld
	acquiredFailed
)

const (
	outcomeOK = iota
	outcomeLost
	outcomeUnknown
	outcomeFailed
)

var (
	reasons      = []string{"stale", "conflict", "not_raised", "no_fence", "blocked", "commit_unknown", "unguarded", "other"}
	acquisitions = []string{"ok", "held", "failed"}
	outcomes     = []string{"ok", "lost", "unknown", "failed"}

	// Waits go from a round trip nearby to a raise's default lock timeout and, of a
	// lock, to minutes. What remains of a lease is worth a closer look near its end;
	// the first bucket is what had none left.
	waitBounds      = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	remainingBounds = []float64{0, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60}
)

// Counters describes them, in their order.
func Counters() []Description {
	return []Description{
		Acquisitions: {Name: "fencing.acquisitions", Unit: "{acquisition}", Help: "Locks that the back end granted, or did not grant to one who did not wait, by outcome.", Label: "outcome", Values: acquisitions},
		WaitsGivenUp: {Name: "fencing.lock.waits_given_up", Unit: "{wait}", Help: "Waits for a lock that ended without it."},
		Regressions:  {Name: "fencing.sequencer.regressions", Unit: "{regression}", Help: "Tokens drawn anew because a store was ahead of the sequencer, which had forgotten."},
		Renewals:     {Name: "fencing.renewals", Unit: "{renewal}", Help: "Renewals of leases, by outcome.", Label: "outcome", Values: outcomes},
		Rejections:   {Name: "fencing.rejections", Unit: "{rejection}", Help: "Raises and writes that a store refused, and commits of which it did not say what became, by reason.", Label: "reason", Values: reasons},
		Unguarded:    {Name: "fencing.unguarded_writes", Unit: "{write}", Help: "Writes let through without a fence, as their callers wished."},
		LeasesLost:   {Name: "fencing.leases.lost", Unit: "{lease}", Help: "Leases that ended before they were released."},
		Releases:     {Name: "fencing.releases", Unit: "{release}", Help: "Releases of locks, by outcome.", Label: "outcome", Values: outcomes},
	}
}

// Histograms describes them, in their order.
func Histograms() []Description {
	return []Description{
		LockWait:           {Name: "fencing.lock.wait", Unit: "s", Help: "Time waited for a lock that another had, whether it came or not.", Bounds: waitBounds},
		RaiseWait:          {Name: "fencing.raise.wait", Unit: "s", Help: "Time that a store took to raise a fence or to refuse it.", Bounds: waitBounds},
		RemainingAtCommit:  {Name: "fencing.lease.remaining_at_commit", Unit: "s", Help: "What was left of the lease when a fenced transaction had been committed; 0 if nothing.", Bounds: remainingBounds},
		RemainingAtRelease: {Name: "fencing.lease.remaining_at_release", Unit: "s", Help: "What was left of the lease when it was released; 0 if nothing.", Bounds: remainingBounds},
	}
}

// Prometheus returns the name that OpenTelemetry's specification of compatibility
// derives from the metric's: exported either way it is the same.
func (d Description) Prometheus() string {
	name := strings.ReplaceAll(d.Name, ".", "_")
	if d.Unit == "s" {
		return name + "_seconds"
	}
	return name + "_total"
}
