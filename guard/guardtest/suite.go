package guardtest

import (
	"context"
	"testing"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// A Store is a guard together with data that it guards: one table of keys and
// values in the same database as the fences. It must be safe for concurrent use,
// with three connections at least. Every check uses names of its own, so that
// checks and runs may share a store.
type Store interface {
	guard.Guard

	// Update runs fn in one transaction that has entered every fence of ctx, and
	// commits if fn returns nil; otherwise it returns the error of fn. It returns
	// guard.ErrNoFence if ctx has no fence. It may run fn again if the database
	// asks for a retry, for example after a serialization failure.
	Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
}

// A Tx reads and writes the data in one transaction. Keys are up to 100 bytes of
// ASCII, values up to 64 kB.
type Tx interface {
	Get(ctx context.Context, key string) (value string, ok bool, err error)
	Put(ctx context.Context, key, value string) error // inserts or replaces
	Delete(ctx context.Context, key string) error     // a missing key is no error
}

// A Check is one situation. Func returns what the store did wrong, or nil; ctx
// bounds how long it may take.
type Check struct {
	Name string
	Func func(ctx context.Context, s Store) error
}

// Checks returns the checks of the suite, simple ones first.
func Checks() []Check {
	return []Check{
		{"StoreKeepsData", storeKeepsData},
		{"NoFenceIsRefused", noFenceIsRefused},
		{"FenceThatWasNotRaisedIsRefused", notRaisedIsRefused},
		{"InvalidFenceIsRefused", invalidFenceIsRefused},
		{"RefusedUpdateRunsNothing", refusedUpdateRunsNothing},
		{"FailedUpdateLeavesNothing", failedUpdateLeavesNothing},
		{"PanickedUpdateLeavesNothing", panickedUpdateLeavesNothing},
		{"S1_LateWriteIsRefused", lateWriteIsRefused},
		{"S2_RaiseClosesTheReadWindow", raiseClosesTheReadWindow},
		{"S3_PauseBetweenCheckAndWrite", pauseBetweenCheckAndWrite},
		{"S4_LateCommit", lateCommit},
		{"S5_BlockedRaiseLeavesNoTrace", blockedRaiseLeavesNoTrace},
		{"S9_TokenHandedOutTwiceIsAConflict", tokenHandedOutTwice},
		{"S13_SmallerTokenIsStale", smallerTokenIsStale},
		{"S16_HugeTokensAreExact", hugeTokensAreExact},
		{"S22_RaiseMayBeRepeated", raiseMayBeRepeated},
		{"S28_NestedScopesShareTheFence", nestedScopesShareTheFence},
		{"S35_SeveralFencesDoNotDeadlock", severalFencesDoNotDeadlock},
		{"S35_SeveralFencesAreAllOrNothing", severalFencesAreAllOrNothing},
		{"S36_ReinsertAfterDeleteIsRefused", reinsertAfterDelete},
		{"S46_FenceOfAnotherResourceIsNotEnough", fenceOfAnotherResource},
		{"DeadContextReturnsAtOnce", deadContextReturnsAtOnce},
		{"OddNamesAreKeptApart", oddNamesAreKeptApart},
		{"HistoryOfAppends", historyOfAppends},
		{"HistoryOfTransfers", historyOfTransfers},
	}
}

// limit is how long one check may take: far more than any needs, so that only a
// deadlock meets it.
const limit = 2 * time.Minute

// Run runs every check as a subtest on a store of its own from open.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := check.Func(ctx, open(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
