package torture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/plot"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/history"
)

// Picture returns the history as it can be drawn.
func (res *Result) Picture() plot.Picture {
	p := plot.Picture{
		Title:  fmt.Sprintf("fencectl torture, seed %d", res.Seed),
		Lines:  append(slices.Clone(res.Servers), "Faults: "+counts(res.Faults, nil)+". Witnesses: "+counts(res.Witnesses, Witnesses)+".", res.sentence()),
		Length: time.Duration(res.Seconds * float64(time.Second)),
	}
	for _, i := range res.incidents {
		p.Length = max(p.Length, i.To)
		if i.What == Struck {
			p.Strikes = append(p.Strikes, plot.Span{Kind: "strike", From: i.From, To: i.To, Text: i.Who})
		}
	}
	for _, v := range res.Variants {
		p.Variants = append(p.Variants, res.drawn(v))
	}
	return p
}

// An artist draws the operations of one variant.
type artist struct {
	*Verdict
	started     int64
	incidents   []Incident
	overwritten map[string]bool
	lanes       map[[2]string]*plot.Lane // by resource and worker
}

func (res *Result) drawn(v *Verdict) plot.Variant {
	a := &artist{Verdict: v, started: res.started, incidents: res.incidents, overwritten: overwritten(v.state.Rows), lanes: make(map[[2]string]*plot.Lane)}
	byOp := make(map[string][]workload.Report)
	for _, r := range v.told.Reports {
		byOp[r.Op] = append(byOp[r.Op], r)
	}
	for op, reports := range byOp {
		if resource := v.resourceOf(op); resource != "" {
			a.operation(op, a.lane(resource, seat(reports[0].Worker)), reports)
		}
	}
	drawn := plot.Variant{Name: string(v.Variant), Verdict: v.anomalies(), Bad: v.Control != v.Caught() || !v.Control && len(v.Anomalies) > 0}
	if len(v.Anomalies) == 0 && !v.Control {
		drawn.Verdict = "no anomaly"
	}
	for _, resource := range resources(v.Variant) {
		r := plot.Resource{Name: resource}
		for _, key := range slices.SortedFunc(maps.Keys(a.lanes), func(a, b [2]string) int { return cmp.Compare(a[1], b[1]) }) {
			if key[0] == resource {
				r.Lanes = append(r.Lanes, *a.lanes[key])
			}
		}
		drawn.Resources = append(drawn.Resources, r)
	}
	return drawn
}

// seat is the letter of a worker, which its successors have too.
func seat(worker string) string {
	name := worker[strings.LastIndex(worker, "-")+1:]
	letter, _, _ := strings.Cut(name, ".")
	return letter
}

func (a *artist) lane(resource, who string) *plot.Lane {
	key := [2]string{resource, who}
	if a.lanes[key] == nil {
		a.lanes[key] = &plot.Lane{Who: who}
	}
	return a.lanes[key]
}

// operation draws one operation, whose reports are in their order.
func (a *artist) operation(op string, lane *plot.Lane, reports []workload.Report) {
	at := func(r workload.Report) time.Duration { return time.Duration(r.At - a.started) }
	worker := reports[0].Worker
	begun, ended := at(reports[0]), at(reports[len(reports)-1])
	var granted, lost, done, released workload.Report
	for _, r := range reports {
		switch {
		case r.Step == workload.Granted:
			granted, lost = r, workload.Report{}
		case r.Event == "lost" && lost.At == 0:
			lost = r
		case r.Step == workload.Done:
			done = r
		case r.Step == workload.Released:
			released = r
		}
	}
	for _, i := range a.incidents {
		killed := i.What == Killed && released.At == 0 // it has said its last word some time before
		if i.Who != worker || i.To < begun || i.From > ended && !killed {
			continue
		}
		switch i.What {
		case Frozen:
			defer func() {
				lane.Spans = append(lane.Spans, plot.Span{Kind: "frozen", From: i.From, To: i.To, Text: i.Text})
			}() // on top
		case Cutoff:
			defer func() { lane.Spans = append(lane.Spans, plot.Span{Kind: "cut", From: i.From, To: i.To, Text: i.Text}) }()
		case Killed:
			lane.Marks = append(lane.Marks, plot.Mark{Kind: "killed", At: i.From, Text: op + " " + i.Text})
			ended = i.From
		}
	}
	if granted.At > 0 {
		text := fmt.Sprintf("%s holds token %d", worker, granted.Token)
		until := ended
		if lost.At > 0 {
			until = at(lost)
			lane.Spans = append(lane.Spans, plot.Span{Kind: "lost", From: until, To: ended, Text: text + ", lease lost"})
		}
		lane.Spans = append(lane.Spans, plot.Span{Kind: "hold", From: at(granted), To: until, Text: text})
	}
	if done.At == 0 {
		return
	}
	m := plot.Mark{Kind: string(done.Outcome), At: at(done), Text: fmt.Sprintf("%s %s under token %d: %s %s", op, a.told.Variant, done.Token, done.Outcome, done.Error)}
	if a.overwritten[op] {
		m.Kind = "overwritten"
	}
	lane.Marks = append(lane.Marks, m)
}

// overwritten returns the operations that rest on the same read as another one.
func overwritten(rows []history.Row) map[string]bool {
	byRead := make(map[[2]string][]string)
	for _, r := range rows {
		key := [2]string{r.Resource, r.Previous}
		byRead[key] = append(byRead[key], r.Op)
	}
	lost := make(map[string]bool)
	for _, ops := range byRead {
		for _, op := range ops {
			lost[op] = lost[op] || len(ops) > 1
		}
	}
	return lost
}
