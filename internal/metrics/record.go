package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A Sink keeps the numbers.
type Sink interface {
	// Count adds 1 to the series of c whose label has the value of that index; 0
	// where there is no label.
	Count(ctx context.Context, c Counter, value int)

	// Measure notes a number of seconds that is not negative.
	Measure(ctx context.Context, h Histogram, seconds float64)
}

// Record tells s what e changes.
func Record(e *guard.Event, s Sink) {
	switch ctx := e.Context; e.Kind {
	case guard.EventWaited:
		s.Measure(ctx, LockWait, seconds(e.Took))
		if e.Err != nil {
			s.Count(ctx, WaitsGivenUp, 0)
		}
	case guard.EventAcquired:
		s.Count(ctx, Acquisitions, acquired(e.Err))
	case guard.EventRaised:
		s.Measure(ctx, RaiseWait, seconds(e.Took))
	case guard.EventRepaired:
		s.Count(ctx, Regressions, 0)
	case guard.EventRenewed:
		s.Count(ctx, Renewals, outcome(e.Err))
	case guard.EventCommitted:
		s.Measure(ctx, RemainingAtCommit, seconds(e.Remaining))
	case guard.EventRefused:
		s.Count(ctx, Rejections, reason(e.Err))
		if e.Took > 0 { // a raise
			s.Measure(ctx, RaiseWait, seconds(e.Took))
		}
	case guard.EventUnguarded:
		s.Count(ctx, Unguarded, 0)
	case guard.EventLost:
		s.Count(ctx, LeasesLost, 0)
	case guard.EventReleased:
		s.Count(ctx, Releases, outcome(e.Err))
		s.Measure(ctx, RemainingAtRelease, seconds(e.Remaining))
	}
}

// seconds cuts at 0: the sum of a histogram must not fall, and OpenTelemetry takes
// no negative measurements.
func seconds(d time.Duration) float64 { return max(0, d.Seconds()) }

// Reason returns why a fence or a write was refused, as one word.
func Reason(err error) string { return reasons[reason(err)] }

// sentinels go before those that they are too: a conflict is also stale.
var sentinels = []struct {
	err    error
	reason int
}{
	{guard.ErrConflict, reasonConflict},
	{guard.ErrStale, reasonStale},
	{guard.ErrNotRaised, reasonNotRaised},
	{guard.ErrNoFence, reasonNoFence},
	{guard.ErrBlocked, reasonBlocked},
	{guard.ErrCommitUnknown, reasonCommitUnknown},
	{guard.ErrUnguarded, reasonUnguarded},
}

func reason(err error) int {
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.reason
		}
	}
	return reasonOther
}

func acquired(err error) int {
	switch {
	case err == nil:
		return acquiredOK
	case errors.Is(err, lock.ErrHeld):
		return acquiredHeld
	}
	return acquiredFailed
}

func outcome(err error) int {
	switch {
	case err == nil:
		return outcomeOK
	case errors.Is(err, lock.ErrLost):
		return outcomeLost
	case errors.Is(err, lock.ErrUnknown):
		return outcomeUnknown
	}
	return outcomeFailed
}
