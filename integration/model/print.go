package model

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the history of a violation, step by step, with what stands in Redis and in
// Postgres after each: a lock and a fence as token/nonce.
func Print(w io.Writer, r Result[State]) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\tstep\tcounter\tlock\tfence\tvalue\tcommits\n")
	for i, l := range r.History[1:] {
		s := l.State
		fmt.Fprintf(table, "%2d\t%s %s%s\t%d\t%v\t%v\t%d\t%d\n", i+1, l.Step.Who, l.Step.What, detail(r.History[i].State, s, l.Step), s.counter, s.lock, s.fence, s.row.value, s.commits)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "=> %v\n", r.Violation)
	return err
}

// detail says what the columns do not show.
func detail(from, to State, step Step) string {
	for c, name := range clientNames {
		before, after := from.clients[c], to.clients[c]
		switch {
		case step.Who != name:
		case !before.work.hasRead && after.work.hasRead:
			return fmt.Sprintf(" %d", after.work.read)
		case before.phase == ready && after.phase == idle && to.open.at == nothing:
			return fmt.Sprintf(" %v, and is refused", before.work.fence)
		case before.phase == inside && after.phase == done && from.commits == to.commits:
			return ", and is refused"
		case before.phase == ready && after.phase == inside:
			return fmt.Sprintf(" %v", after.work.fence)
		}
	}
	switch {
	case from.late != (fence{}) && to.late == (fence{}):
		return fmt.Sprintf(": %v", from.late)
	case from.open.at != nothing && to.open.at != entered:
		return fmt.Sprintf(": %v", from.open.fence)
	}
	return ""
}

// String returns token/nonce.
func (f fence) String() string {
	switch {
	case f.token == 0:
		return "-"
	case f.nonce == 0:
		return fmt.Sprintf("%d/?", f.token)
	}
	return fmt.Sprintf("%d/%s", f.token, nonceNames[f.nonce])
}
