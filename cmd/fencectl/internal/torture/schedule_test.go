package torture

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/history"
)

func TestASeedRepeatsItsSchedule(t *testing.T) {
	t.Parallel()
	draw := func(seed, stream uint64) (rounds []round) {
		s := newSchedule(seed, stream, true)
		for range 200 {
			rounds = append(rounds, s.next())
		}
		return rounds
	}
	require.Equal(t, draw(1, 2), draw(1, 2))
	require.NotEqual(t, draw(1, 2), draw(1, 3))
	require.NotEqual(t, draw(1, 2), draw(2, 2))

	strikes := func(seed uint64) (all []strike) {
		next := newStrikes(seed)
		for range 50 {
			all = append(all, next())
		}
		return all
	}
	require.Equal(t, strikes(1), strikes(1))
	require.NotEqual(t, strikes(1), strikes(2))
}

// In a short run already everything has to happen.
func TestAScheduleHasEverything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		s := newSchedule(seed, 0, false)
		first := make(map[string]bool)
		for range traps {
			first[s.next().trap.name] = true
		}
		require.Len(t, first, len(traps), "every trap comes in the first rounds")

		seen := make(map[any]bool)
		for range 1000 {
			r := s.next()
			for _, e := range []errand{r.a, r.b} {
				seen[e.fault], seen[e.kind], seen[e.way], seen[e.at] = true, true, true, true
				if e.way == workload.Single {
					require.Equal(t, workload.Append, e.kind)
				}
			}
		}
		for _, o := range odds {
			require.True(t, seen[o.fault], o.fault)
		}
		for _, k := range workload.Kinds {
			require.True(t, seen[k], k)
		}
		for _, w := range workload.Ways {
			require.True(t, seen[w], w)
		}
		for _, step := range workload.HoldingSteps {
			require.True(t, seen[step], step)
		}

		struck := make(map[Fault]bool)
		next := newStrikes(seed)
		for range shared {
			struck[next().fault] = true
		}
		require.Len(t, struck, len(shared))
	}
	total := 0
	for _, o := range odds {
		total += o.in100
	}
	require.Equal(t, 100, total)
}

func TestConclude(t *testing.T) {
	t.Parallel()
	result := func() *Result {
		res := &Result{Witnesses: make(map[string]int)}
		for _, v := range workload.Guarded {
			res.Variants = append(res.Variants, &Verdict{Variant: v, Committed: 1})
		}
		for _, v := range workload.Controls {
			d := &Verdict{Variant: v, Control: true}
			d.Violations = append(d.Violations, broken("lost update", 5)...)
			d.count()
			require.Len(t, d.Violations, shownOfEach)
			res.Variants = append(res.Variants, d)
		}
		for _, w := range Witnesses {
			res.Witnesses[w] = 1
		}
		return res
	}
	for name, c := range map[string]struct {
		spoil              func(res *Result)
		clean, trustworthy bool
	}{
		"as it should be":              {func(*Result) {}, true, true},
		"an anomaly of a guard":        {func(res *Result) { res.Variants[0].Violations = broken("item", 1); res.Variants[0].count() }, false, true},
		"a control that lost nothing":  {func(res *Result) { res.Variants[7].Violations = broken("token order", 1); res.Variants[7].count() }, true, false},
		"a fault that nobody has seen": {func(res *Result) { delete(res.Witnesses, Blocked) }, true, false},
		"a guard that wrote nothing":   {func(res *Result) { res.Variants[1].Committed = 0 }, true, false},
		"porcupine undecided":          {func(res *Result) { res.Variants[1].Undecided = 1 }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := result()
			c.spoil(res)
			res.conclude()
			require.Equal(t, c.clean, res.Clean)
			require.Equal(t, c.trustworthy, res.Trustworthy, res.Doubts)
			require.NotEmpty(t, res.sentence())
		})
	}
}

func broken(k history.Kind, n int) []history.Violation {
	return slices.Repeat([]history.Violation{{Kind: k, Text: "somehow"}}, n)
}
