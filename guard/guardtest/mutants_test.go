package guardtest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardtest"
)

// TestBrokenStoresAreCaught breaks one rule at a time and names the checks that
// must see it. A suite that a broken guard passes is worse than none.
func TestBrokenStoresAreCaught(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flaw
		caughtBy []string
	}{
		"raise with >= instead of >": {
			flaw{raise: raiseIf(func(r guard.Record, f guard.Fence) bool { return f.Token >= r.Fence.Token })},
			[]string{"S9_TokenHandedOutTwiceIsAConflict", "OddNamesAreKeptApart", "HistoryOfAppends"},
		},
		"an equal token is taken for one's own": {
			flaw{raise: func(r guard.Record, f guard.Fence) (guard.Record, error) {
				if f.Token == r.Fence.Token {
					return r, nil
				}
				return raiseIf(func(r guard.Record, f guard.Fence) bool { return f.Token > r.Fence.Token })(r, f)
			}},
			[]string{"S9_TokenHandedOutTwiceIsAConflict"},
		},
		"an equal token is taken for one's own by raise and enter": {
			flaw{
				raise: raiseIf(func(r guard.Record, f guard.Fence) bool { return f.Token >= r.Fence.Token }),
				enter: enterIf(func(r guard.Record, f guard.Fence) bool { return f.Token == r.Fence.Token }),
			},
			[]string{"S9_TokenHandedOutTwiceIsAConflict", "HistoryOfAppends"},
		},
		"enter does not look at the nonce": {
			flaw{enter: enterIf(func(r guard.Record, f guard.Fence) bool { return f.Token == r.Fence.Token })},
			[]string{"S9_TokenHandedOutTwiceIsAConflict"},
		},
		"the holder is taken for the nonce": {
			flaw{
				raise: raiseIf(func(r guard.Record, f guard.Fence) bool {
					return f.Token > r.Fence.Token || f.Token == r.Fence.Token && f.Holder == r.Fence.Holder
				}),
				enter: enterIf(func(r guard.Record, f guard.Fence) bool {
					return f.Token == r.Fence.Token && f.Holder == r.Fence.Holder
				}),
			},
			[]string{"S9_TokenHandedOutTwiceIsAConflict", "S22_RaiseMayBeRepeated"},
		},
		"a repeated raise is refused": {
			flaw{raise: raiseIf(func(r guard.Record, f guard.Fence) bool { return f.Token > r.Fence.Token })},
			[]string{"S22_RaiseMayBeRepeated", "S28_NestedScopesShareTheFence", "S35_SeveralFencesDoNotDeadlock"},
		},
		"raise takes any token": {
			flaw{raise: raiseIf(func(guard.Record, guard.Fence) bool { return true })},
			[]string{"S13_SmallerTokenIsStale", "S36_ReinsertAfterDeleteIsRefused", "HistoryOfAppends", "HistoryOfTransfers"},
		},
		"raise does nothing and says yes": {
			flaw{raise: func(r guard.Record, _ guard.Fence) (guard.Record, error) { return r, nil }},
			[]string{"StoreKeepsData", "S1_LateWriteIsRefused"},
		},
		"no raise, the token is checked at the write": {
			flaw{
				raise: func(r guard.Record, _ guard.Fence) (guard.Record, error) { return r, nil },
				enter: func(g *gate, f guard.Fence) error {
					if f.Token < g.record.Fence.Token {
						return &guard.StaleError{Held: f, Current: g.record.Fence}
					}
					g.record.Fence = f
					return nil
				},
			},
			[]string{"FenceThatWasNotRaisedIsRefused", "S9_TokenHandedOutTwiceIsAConflict", "HistoryOfAppends"},
		},
		"the row rule, which does not see the read window": {
			flaw{stampsAtWrite: true},
			[]string{"S2_RaiseClosesTheReadWindow", "S3_PauseBetweenCheckAndWrite", "S4_LateCommit", "FenceThatWasNotRaisedIsRefused", "HistoryOfAppends"},
		},
		"enter takes a token that is not smaller": {
			flaw{enter: enterIf(func(r guard.Record, f guard.Fence) bool { return r.Fence.Token > 0 && f.Token >= r.Fence.Token })},
			[]string{"FenceThatWasNotRaisedIsRefused", "RefusedUpdateRunsNothing", "S9_TokenHandedOutTwiceIsAConflict"},
		},
		"enter takes any token that is not greater": {
			flaw{enter: enterIf(func(r guard.Record, f guard.Fence) bool { return f.Token <= r.Fence.Token })},
			[]string{"S1_LateWriteIsRefused", "S2_RaiseClosesTheReadWindow", "HistoryOfAppends", "HistoryOfTransfers"},
		},
		"enter takes a store without a fence": {
			flaw{enter: enterIf(func(r guard.Record, f guard.Fence) bool { return r.Fence.Token == 0 || r.Fence == f })},
			[]string{"FenceThatWasNotRaisedIsRefused", "S46_FenceOfAnotherResourceIsNotEnough"},
		},
		"enter creates the fence that is missing": {
			flaw{enter: func(g *gate, f guard.Fence) error {
				if g.record.Fence.Token == 0 {
					g.record.Fence = f
				}
				return g.record.Enter(f)
			}},
			[]string{"FenceThatWasNotRaisedIsRefused", "RefusedUpdateRunsNothing"},
		},
		"no fence at all equals a missing one": {
			flaw{enter: enterIf(func(r guard.Record, f guard.Fence) bool { return r.Fence.Token == f.Token && r.Fence.Nonce == f.Nonce })},
			[]string{"InvalidFenceIsRefused"},
		},
		"the gate is left before the write":  {flaw{doesNotHold: true}, []string{"S3_PauseBetweenCheckAndWrite", "S4_LateCommit", "HistoryOfAppends"}},
		"the raise does not wait":            {flaw{raisesOverWrites: true}, []string{"S3_PauseBetweenCheckAndWrite", "S4_LateCommit", "S5_BlockedRaiseLeavesNoTrace"}},
		"the raise waits without an end":     {flaw{waitsForEver: true}, []string{"S5_BlockedRaiseLeavesNoTrace"}},
		"a raise that gave up keeps waiting": {flaw{staysInTheQueue: true}, []string{"S5_BlockedRaiseLeavesNoTrace"}},
		"a dead context is not noticed":      {flaw{ignoresDead: true}, []string{"DeadContextReturnsAtOnce"}},
		"invalid fences are raised":          {flaw{takesInvalid: true}, []string{"InvalidFenceIsRefused"}},
		"no fence is needed":                 {flaw{needsNoFence: true}, []string{"NoFenceIsRefused", "RefusedUpdateRunsNothing"}},
		"the check comes after the writes":   {flaw{runsFirst: true}, []string{"RefusedUpdateRunsNothing"}},
		"a refused transaction writes partially": {
			flaw{writesPartially: true}, []string{"S35_SeveralFencesAreAllOrNothing", "RefusedUpdateRunsNothing", "S1_LateWriteIsRefused"},
		},
		"only the first fence is entered":   {flaw{entersFirstOnly: true}, []string{"S35_SeveralFencesAreAllOrNothing"}},
		"fences are entered in any order":   {flaw{order: shuffle}, []string{"S35_SeveralFencesDoNotDeadlock"}},
		"a failed transaction commits":      {flaw{commitsFailed: true}, []string{"FailedUpdateLeavesNothing"}},
		"a panicked transaction stays open": {flaw{keepsPanicked: true}, []string{"PanickedUpdateLeavesNothing"}},
		"a delete takes the fence along":    {flaw{deleteDropsFences: true}, []string{"S36_ReinsertAfterDeleteIsRefused"}},
		"tokens are floats": {
			flaw{raise: raiseIf(func(r guard.Record, f guard.Fence) bool {
				return float64(f.Token) > float64(r.Fence.Token) || f == r.Fence
			})},
			[]string{"S16_HugeTokensAreExact"},
		},
		"tokens have 32 bits": {
			flaw{raise: raiseIf(func(r guard.Record, f guard.Fence) bool {
				return int32(f.Token) > int32(r.Fence.Token) || f == r.Fence //nolint:gosec // the flaw
			})},
			[]string{"S16_HugeTokensAreExact"},
		},
		"names have no case":            {flaw{name: strings.ToLower}, []string{"OddNamesAreKeptApart"}},
		"names lose their last blanks":  {flaw{name: func(r string) string { return strings.TrimRight(r, " ") }}, []string{"OddNamesAreKeptApart"}},
		"names are cut":                 {flaw{name: func(r string) string { return r[:min(len(r), guard.MaxResource-1)] }}, []string{"OddNamesAreKeptApart"}},
		"all resources share one fence": {flaw{name: func(string) string { return "" }}, []string{"S46_FenceOfAnotherResourceIsNotEnough", "OddNamesAreKeptApart"}},
		"a refusal does not say who is current": {
			flaw{raise: func(r guard.Record, f guard.Fence) (guard.Record, error) {
				if r.Raise(f) != nil {
					return r, guard.ErrStale
				}
				return guard.Record{Fence: f}, nil
			}},
			[]string{"S13_SmallerTokenIsStale", "S36_ReinsertAfterDeleteIsRefused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, check := range c.caughtBy {
				requireCaught(t, check, c.flaw)
			}
		})
	}
}

// requireCaught runs one check on a broken store. Where luck is a part of it, as
// in a history, a few runs must do.
func requireCaught(t *testing.T, name string, f flaw) {
	t.Helper()
	for _, check := range guardtest.Checks() {
		if check.Name != name {
			continue
		}
		bound := time.Minute
		if f.hangs() {
			bound = time.Second
		}
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			err := check.Func(ctx, newLab(f))
			cancel()
			if err == nil || strings.Contains(err.Error(), "proves nothing") {
				continue
			}
			require.Equal(t, f.hangs(), errors.Is(err, context.DeadlineExceeded), "%s fails for a wrong reason: %v", name, err)
			t.Logf("%s: %v", name, err)
			return
		}
		require.Failf(t, "broken store passed", "%s did not catch it", name)
	}
	require.Failf(t, "no such check", "%s", name)
}

// raiseIf is a raise that admits by another rule.
func raiseIf(admit func(r guard.Record, f guard.Fence) bool) func(r guard.Record, f guard.Fence) (guard.Record, error) {
	return func(r guard.Record, f guard.Fence) (guard.Record, error) {
		if r.Fence.Token == 0 || admit(r, f) {
			return guard.Record{Fence: f}, nil
		}
		return r, &guard.StaleError{Held: f, Current: r.Fence}
	}
}

// enterIf is an enter that admits by another rule.
func enterIf(admit func(r guard.Record, f guard.Fence) bool) func(g *gate, f guard.Fence) error {
	return func(g *gate, f guard.Fence) error {
		if admit(g.record, f) {
			return nil
		}
		if g.record.Fence.Token == 0 || f.Token > g.record.Fence.Token {
			return &guard.NotRaisedError{Held: f, Current: g.record.Fence}
		}
		return &guard.StaleError{Held: f, Current: g.record.Fence}
	}
}

func shuffle(fences []guard.Fence) {
	rand.Shuffle(len(fences), func(i, j int) { fences[i], fences[j] = fences[j], fences[i] })
}
