package torture

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/oracle"
)

// Write writes the result for people.
func (res *Result) Write(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "seed %d, %gs\n", res.Seed, res.Seconds)
	for _, about := range res.Servers {
		fmt.Fprintf(b, "  %s\n", about)
	}
	if len(res.LeftOut) > 0 {
		fmt.Fprintf(b, "  left out, because others may use these servers or they cannot do it: %s\n", join(res.LeftOut))
	}
	b.WriteByte('\n')
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "variant\toperations\tcommitted\trefused\tfailed\tunknown\tanomalies")
	for _, v := range res.Variants {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", v.Variant, v.Operations, v.Committed, v.Refused, v.Failed, v.Unknown, v.anomalies())
	}
	_ = table.Flush() // into a Builder, which takes everything
	fmt.Fprintf(b, "\nfaults: %s\n", counts(res.Faults, nil))
	fmt.Fprintf(b, "witnesses, in the guarded variants: %s\n", counts(res.Witnesses, Witnesses))
	fmt.Fprintf(b, "recovered %.1fs after the last fault, of %gs allowed\n", res.Recovered, recoveryBound.Seconds())
	for _, v := range res.Variants {
		if v.Control {
			continue
		}
		for _, found := range v.Violations {
			fmt.Fprintf(b, "\nANOMALY in %s: %s", v.Variant, found)
		}
		if len(v.Violations) > 0 {
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(b, "\n%s\n", res.sentence())
	_, err := io.WriteString(w, b.String())
	return err
}

func (res *Result) sentence() string {
	switch {
	case !res.Clean:
		return fmt.Sprintf("NOT CLEAN: a guarded history is broken. That is a defect of fencing; please report it with the seed %d.", res.Seed)
	case !res.Trustworthy:
		return "NOT TO BE TRUSTED: " + strings.Join(res.Doubts, "; ") + ". A longer run, with all faults, may tell."
	}
	return "OK: every guarded history is clean, and the same faults were seen to break each control."
}

// anomalies says what was found, for the table.
func (v *Verdict) anomalies() string {
	var kinds []string
	for _, k := range oracle.Rules {
		if n := v.Anomalies[k]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, k))
		}
	}
	all := "none"
	if len(kinds) > 0 {
		all = strings.Join(kinds, ", ")
	}
	switch {
	case v.Control && v.Caught():
		return "control, caught: " + all
	case v.Control:
		return "control, NOT CAUGHT: " + all
	case v.Undecided > 0:
		all += fmt.Sprintf(" (porcupine undecided on %d)", v.Undecided)
	}
	return all
}

// counts lists numbers by name, in an order or in that of the names.
func counts(all map[string]int, order []string) string {
	if order == nil {
		for name := range all {
			order = append(order, name)
		}
		slices.Sort(order)
	}
	var parts []string
	for _, name := range order {
		parts = append(parts, fmt.Sprintf("%d %s", all[name], name))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
