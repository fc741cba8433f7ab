package worker

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// A Journal is what the workers of one test were told and have said.
type Journal struct {
	mu       sync.Mutex
	outcomes map[string]history.Outcome
	reports  []Report
}

// NewJournal returns an empty journal.
func NewJournal() *Journal { return &Journal{outcomes: make(map[string]history.Outcome)} }

// order names a new append. Until its worker says otherwise, which it may never do,
// nobody knows what it came to.
func (j *Journal) order(name string) (op string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	op = fmt.Sprintf("%s-%d", name, len(j.outcomes)+1)
	j.outcomes[op] = history.Unknown
	return op
}

func (j *Journal) add(r Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reports = append(j.reports, r)
	if r.Step == Done {
		j.outcomes[r.Op] = r.Outcome
	}
}

// Forget notes that an acknowledged append was undone by the restore of an older
// database.
func (j *Journal) Forget(op string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.outcomes[op] = history.Forgotten
}

// Outcomes returns what each append has come to so far.
func (j *Journal) Outcomes() map[string]history.Outcome {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.outcomes)
}

// Count returns how many appends have an outcome.
func (j *Journal) Count(o history.Outcome) (n int) {
	for _, got := range j.Outcomes() {
		if got == o {
			n++
		}
	}
	return n
}

// Reports returns those that are wanted.
func (j *Journal) Reports(wanted func(Report) bool) (found []Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.reports {
		if wanted(r) {
			found = append(found, r)
		}
	}
	return found
}

// Events returns how often the lockers have told of an event.
func (j *Journal) Events(name string) int {
	return len(j.Reports(func(r Report) bool { return r.Event == name }))
}

// SharedTokens returns the tokens of resource that Redis has given to more than
// one acquisition.
func (j *Journal) SharedTokens(resource string) []guard.Token {
	nonces := make(map[guard.Token]map[string]struct{})
	for _, r := range j.Reports(func(r Report) bool { return r.Event == "acquired" && r.Fence.Resource == resource }) {
		if nonces[r.Fence.Token] == nil {
			nonces[r.Fence.Token] = make(map[string]struct{})
		}
		nonces[r.Fence.Token][r.Fence.Nonce] = struct{}{}
	}
	maps.DeleteFunc(nonces, func(_ guard.Token, by map[string]struct{}) bool { return len(by) < 2 })
	return slices.Sorted(maps.Keys(nonces))
}
