package demo

import "fmt"

// conclude fills in what follows from the numbers.
func (r Result) conclude() Result {
	r.Want = opening - r.Sold
	r.Clean = r.Stock == r.Want
	r.Text = fmt.Sprintf("sold %d of %d, stock says %d", r.Sold, opening, r.Stock)
	if r.Clean {
		r.Text += ": right"
	} else {
		r.Text += fmt.Sprintf(", should be %d: B's update is lost", r.Want)
	}
	return r
}

// judge asks for more than clean histories: a guard that nothing tries proves
// nothing, and neither does a demo in which the lock alone loses nothing.
func judge(results []Result) Verdict {
	lost, refused := 0, 0
	for _, r := range results {
		switch {
		case !r.Guarded && r.Stock <= r.Want:
			return Verdict{Text: fmt.Sprintf("act %d lost no update, so the others prove nothing", r.Act)}
		case !r.Guarded:
			lost += r.Stock - r.Want
		case !r.Clean:
			return Verdict{Text: fmt.Sprintf("act %d is NOT clean although it was guarded: %s", r.Act, r.Text)}
		case r.Refused == 0:
			return Verdict{Text: fmt.Sprintf("act %d had no stale write to refuse, so it proves nothing", r.Act)}
		case r.Forgot && r.Repaired == 0:
			return Verdict{Text: fmt.Sprintf("act %d had no token to repair, so it proves nothing", r.Act)}
		}
		refused += r.Refused
	}
	return Verdict{OK: true, Text: fmt.Sprintf("the lock alone lost %d of %d sold, the fence none; %d stale writes refused", lost, results[0].Sold, refused)}
}
