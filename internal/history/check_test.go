package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

var begin = time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)

// clean returns a history of four appends by two holders, and what their workers
// know.
func clean() (rows []history.Row, balances map[string]int64, outcomes map[string]history.Outcome) {
	outcomes = map[string]history.Outcome{"refused": history.Refused, "failed": history.Failed, "unknown": history.Unknown}
	previous, balance := "", int64(0)
	for i, token := range []guard.Token{3, 3, 4, 7} {
		r := history.Row{
			Resource: "r", Op: fmt.Sprintf("op%d", i), Previous: previous, Position: int64(i + 1), Before: balance, Amount: int64(10 * (i + 1)),
			Token: token, Nonce: fmt.Sprintf("n%d", token), Holder: "h", Committed: begin.Add(time.Duration(i) * time.Second),
		}
		previous, balance = r.Op, r.Balance()
		rows, outcomes[r.Op] = append(rows, r), history.Committed
	}
	return rows, map[string]int64{"r": balance}, outcomes
}

func TestCheckAcceptsACleanHistory(t *testing.T) {
	t.Parallel()
	rows, balances, outcomes := clean()
	require.Empty(t, history.Check(rows, balances, outcomes))
	slices.Reverse(rows)
	require.Empty(t, history.Check(rows, balances, outcomes), "in whatever order it was read")
	outcomes["op3"] = history.Unknown
	require.Empty(t, history.Check(rows, balances, outcomes), "an unknown append may be there")
	require.Empty(t, history.Check(nil, map[string]int64{"r": 0}, nil))
}

func TestCheckFindsEveryViolation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(rows []history.Row, balances map[string]int64, outcomes map[string]history.Outcome) []history.Row
		want  []history.Kind
	}{
		"an acknowledged append is not there": {
			func(rows []history.Row, balances map[string]int64, _ map[string]history.Outcome) []history.Row {
				balances["r"] -= rows[3].Amount
				return rows[:3]
			},
			[]history.Kind{history.LostAppend},
		},
		"an append in the middle is not there": {
			func(rows []history.Row, balances map[string]int64, outcomes map[string]history.Outcome) []history.Row {
				delete(outcomes, "op1")
				balances["r"] -= rows[1].Amount
				return slices.Delete(rows, 1, 2)
			},
			[]history.Kind{history.BrokenChain},
		},
		"an append is there twice": {
			func(rows []history.Row, balances map[string]int64, _ map[string]history.Outcome) []history.Row {
				again := rows[3]
				again.Previous, again.Position, again.Before, again.Committed = again.Op, again.Position+1, again.Balance(), again.Committed.Add(time.Second)
				balances["r"] += again.Amount
				return append(rows, again)
			},
			[]history.Kind{history.Repeated},
		},
		"a refused append is there": {
			func(rows []history.Row, _ map[string]int64, outcomes map[string]history.Outcome) []history.Row {
				outcomes["op3"] = history.Refused
				return rows
			},
			[]history.Kind{history.Ghost},
		},
		"an append that a restore had undone is there": {
			func(rows []history.Row, _ map[string]int64, outcomes map[string]history.Outcome) []history.Row {
				outcomes["op3"] = history.Forgotten
				return rows
			},
			[]history.Kind{history.Ghost},
		},
		"nobody wrote it": {
			func(rows []history.Row, _ map[string]int64, outcomes map[string]history.Outcome) []history.Row {
				delete(outcomes, "op3")
				return rows
			},
			[]history.Kind{history.Ghost},
		},
		"two appends read the same": {
			func(rows []history.Row, balances map[string]int64, _ map[string]history.Outcome) []history.Row {
				rows[3].Previous, rows[3].Position, rows[3].Before = rows[2].Previous, rows[2].Position, rows[2].Before
				balances["r"] = rows[3].Balance()
				return rows
			},
			[]history.Kind{history.LostUpdate, history.Balance},
		},
		"the balance that was read is none that there was": {
			func(rows []history.Row, _ map[string]int64, _ map[string]history.Outcome) []history.Row {
				rows[2].Before++
				return rows
			},
			[]history.Kind{history.BrokenChain, history.BrokenChain},
		},
		"the balance was overwritten": {
			func(rows []history.Row, balances map[string]int64, _ map[string]history.Outcome) []history.Row {
				balances["r"]--
				return rows
			},
			[]history.Kind{history.Balance},
		},
		"a late writer": {
			func(rows []history.Row, _ map[string]int64, _ map[string]history.Outcome) []history.Row {
				rows[3].Token, rows[3].Nonce = 3, "n3"
				return rows
			},
			[]history.Kind{history.TokenOrder, history.TokenOrder},
		},
		"two holders of one token": {
			func(rows []history.Row, _ map[string]int64, _ map[string]history.Outcome) []history.Row {
				rows[3].Token, rows[3].Nonce = rows[2].Token, "another"
				return rows
			},
			[]history.Kind{history.SharedToken, history.SharedToken},
		},
		"committed before what it was computed from": {
			func(rows []history.Row, _ map[string]int64, _ map[string]history.Outcome) []history.Row {
				rows[0].Committed, rows[1].Committed = rows[1].Committed, rows[0].Committed
				return rows
			},
			[]history.Kind{history.CommitOrder},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, balances, outcomes := clean()
			rows = c.spoil(rows, balances, outcomes)
			var got []history.Kind
			for _, v := range history.Check(rows, balances, outcomes) {
				got = append(got, v.Kind)
			}
			require.Equal(t, c.want, got)
		})
	}
}
