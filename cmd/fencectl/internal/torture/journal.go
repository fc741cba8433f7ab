package torture

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/history"
)

// A journal is what the workers of one variant were told and have said.
type journal struct {
	mu       sync.Mutex
	outcomes map[string]history.Outcome
	orders   map[string]workload.Order
	reports  []workload.Report
}

func newJournal() *journal {
	return &journal{outcomes: make(map[string]history.Outcome), orders: make(map[string]workload.Order)}
}

// order names a new operation. Until its worker says otherwise, which it may never
// do, nobody knows what it came to.
func (j *journal) order(worker string, o *workload.Order) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.Op = fmt.Sprintf("%s-%d", worker, len(j.orders)+1)
	j.outcomes[o.Op] = history.Unknown
	if o.Also != "" {
		j.outcomes[workload.AlsoOp(o.Op)] = history.Unknown
	}
	j.orders[o.Op] = *o
}

func (j *journal) add(r workload.Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reports = append(j.reports, r)
	if r.Step == workload.Done {
		j.outcomes[r.Op] = r.Outcome
		if j.orders[r.Op].Also != "" {
			j.outcomes[workload.AlsoOp(r.Op)] = r.Outcome
		}
	}
}

// pairs returns the operations on two resources: the names of both halves.
func (j *journal) pairs() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	both := make(map[string]string)
	for op, o := range j.orders {
		if o.Also != "" {
			both[op] = workload.AlsoOp(op)
		}
	}
	return both
}

// resourceOf returns "" for an operation that was not ordered.
func (j *journal) resourceOf(op string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.orders[op].Resource
}

func (j *journal) all() (map[string]history.Outcome, []workload.Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.outcomes), j.reports[:len(j.reports):len(j.reports)]
}

func (j *journal) count(o history.Outcome) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, got := range j.outcomes {
		if got == o {
			n++
		}
	}
	return n
}

func count(reports []workload.Report, wanted func(workload.Report) bool) (n int) {
	for _, r := range reports {
		if wanted(r) {
			n++
		}
	}
	return n
}

func is(r workload.Report, sentinel string) bool { return slices.Contains(r.Is, sentinel) }
