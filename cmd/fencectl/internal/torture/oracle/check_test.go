package oracle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/oracle"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// clean returns four operations: an append, two toggles and a transfer.
func clean() (oracle.State, oracle.Told) {
	s := oracle.State{
		Balances: map[string]int64{"r": 10},
		Effects:  []oracle.Effect{{"r", "op2", "insert", 1}, {"r", "op3", "delete", 1}, {"r", "op4", "transfer", 7}},
		Accounts: map[string][2]int64{"r": {workload.Total - 7, 7}},
		Items:    map[string]int{},
	}
	t := oracle.Told{Variant: workload.PgGuard, Outcomes: make(map[string]history.Outcome)}
	previous, before := "", int64(0)
	for i := range 4 {
		r := history.Row{
			Resource: "r", Op: fmt.Sprintf("op%d", i+1), Previous: previous, Position: int64(i + 1), Before: before,
			Token: guard.Token(i + 1), Nonce: fmt.Sprintf("n%d", i+1), Committed: time.Unix(int64(i), 0),
		}
		if i == 0 {
			r.Amount = 10
		}
		previous, before = r.Op, r.Balance()
		s.Rows, s.Log = append(s.Rows, r), append(s.Log, r.Op)
		t.Outcomes[r.Op] = history.Committed
	}
	return s, t
}

func TestCheckAcceptsACleanState(t *testing.T) {
	t.Parallel()
	s, told := clean()
	require.Empty(t, oracle.Check(s, told))
	require.Empty(t, oracle.Check(s.Of([]string{"r"}), told))
	told.Reports = []workload.Report{{Step: workload.Done, Op: "op5", Torn: "1 + 1 is not 3"}}
	require.Empty(t, oracle.Check(s, told), "a torn read is no harm if nothing was written")
}

func TestCheckFindsEveryViolation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(s *oracle.State, t *oracle.Told)
		want  []history.Kind
	}{
		"the rules of the history hold": {
			func(_ *oracle.State, t *oracle.Told) { t.Outcomes["op4"] = history.Refused },
			[]history.Kind{history.Ghost},
		},
		"the log has another order": {
			func(s *oracle.State, _ *oracle.Told) { s.Log[1], s.Log[2] = s.Log[2], s.Log[1] },
			[]history.Kind{oracle.LogOrder},
		},
		"a row is not in the log": {
			func(s *oracle.State, _ *oracle.Told) { s.Log = s.Log[1:] },
			[]history.Kind{oracle.LogOrder},
		},
		"two holders of one token, in the log": {
			func(s *oracle.State, _ *oracle.Told) { s.Rows[2].Token = 2 },
			[]history.Kind{history.SharedToken, history.SharedToken, oracle.LogOrder},
		},
		"a transfer was overwritten": {
			func(s *oracle.State, _ *oracle.Told) { s.Accounts["r"] = [2]int64{workload.Total - 6, 6} },
			[]history.Kind{oracle.Account},
		},
		"the sum of the accounts is another": {
			func(s *oracle.State, _ *oracle.Told) { s.Accounts["r"] = [2]int64{workload.Total - 7, 8} },
			[]history.Kind{oracle.Account},
		},
		"a committed transfer rests on a torn read": {
			func(_ *oracle.State, t *oracle.Told) {
				t.Reports = []workload.Report{{Step: workload.Done, Op: "op4", Torn: "1 + 1 is not 3"}}
			},
			[]history.Kind{oracle.TornRead},
		},
		"inserted twice": {
			func(s *oracle.State, _ *oracle.Told) { s.Effects[1].What, s.Items["r"] = "insert", 1 },
			[]history.Kind{oracle.Item},
		},
		"deleted before it was there": {
			func(s *oracle.State, _ *oracle.Told) { s.Effects = s.Effects[1:] },
			[]history.Kind{oracle.Item},
		},
		"a row that was deleted is there": {
			func(s *oracle.State, _ *oracle.Told) { s.Items["r"] = 1 },
			[]history.Kind{oracle.Item},
		},
		"one half of a pair is missing": {
			func(s *oracle.State, _ *oracle.Told) { s.Pairs = map[string]string{"op1": "op1+"} },
			[]history.Kind{oracle.Half},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, told := clean()
			c.spoil(&s, &told)
			var got []history.Kind
			for _, v := range oracle.Check(s, told) {
				require.Contains(t, oracle.Rules, v.Kind)
				got = append(got, v.Kind)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// A lock without tokens has no order of tokens that could be broken.
func TestCheckAsksNoTokensOfALockWithoutThem(t *testing.T) {
	t.Parallel()
	s, told := clean()
	told.Variant = workload.PopularLock
	for i := range s.Rows {
		s.Rows[i].Token = 0
	}
	require.Empty(t, oracle.Check(s, told))
}

func TestSharedTokens(t *testing.T) {
	t.Parallel()
	granted := func(resource string, token guard.Token, nonce string) workload.Report {
		return workload.Report{Step: workload.Granted, Resource: resource, Token: token, Nonce: nonce}
	}
	all := []workload.Report{granted("r", 1, "a"), granted("r", 1, "a"), granted("s", 1, "b"), granted("r", 2, "c")}
	require.Zero(t, oracle.SharedTokens(all), "the same acquisition, other resources")
	require.Equal(t, 1, oracle.SharedTokens(slices.Concat(all, []workload.Report{granted("r", 2, "d"), granted("r", 2, "e")})))
}
