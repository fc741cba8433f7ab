package oracle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// A register is a resource as it should behave: a value that one reads, and that a
// commit replaces only under the fence that is in force.
type register struct {
	token guard.Token
	nonce string
	value string
}

type input struct {
	call  workload.Call
	token guard.Token
	nonce string
	value string // that is written
	after string // of a commit: the value that it had read
}

type output struct {
	outcome history.Outcome
	value   string // that was read
}

var fencedRegister = porcupine.NondeterministicModel{
	Init: func() []any { return []any{register{}} },
	Step: func(state, in, out any) []any { return step(state.(register), in.(input), out.(output)) },
	DescribeOperation: func(in, out any) string {
		i, o := in.(input), out.(output)
		switch i.call {
		case workload.CallRaise:
			return fmt.Sprintf("raise %d: %s", i.token, o.outcome)
		case workload.CallRead:
			return fmt.Sprintf("read %q", o.value)
		}
		return fmt.Sprintf("commit %s after %q under %d: %s", i.value, i.after, i.token, o.outcome)
	},
	DescribeState: func(state any) string {
		s := state.(register)
		return fmt.Sprintf("%q, fence %d", s.value, s.token)
	},
}

func step(s register, in input, out output) []any {
	switch in.call {
	case workload.CallRaise:
		mine := in.token == s.token && in.nonce == s.nonce
		admitted := in.token > s.token || mine
		raised := register{in.token, in.nonce, s.value}
		switch {
		case out.outcome == history.Committed && admitted:
			return []any{raised}
		case out.outcome == history.Refused && !admitted:
			return []any{s}
		case out.outcome == history.Unknown && admitted && !mine:
			return []any{s, raised}
		case out.outcome == history.Unknown:
			return []any{s}
		}
	case workload.CallRead:
		if out.value == s.value {
			return []any{s}
		}
	case workload.CallCommit:
		mine := in.token == s.token && in.nonce == s.nonce
		switch {
		case out.outcome == history.Committed && mine && in.after == s.value:
			return []any{register{s.token, s.nonce, in.value}}
		case out.outcome == history.Refused && !mine:
			return []any{s}
		}
	}
	return nil
}

// never is later than every time of a run.
const never = math.MaxInt64 / 2

// operations makes porcupine's history of the reports of one resource. What has no
// answer, or an ambiguous one, may take effect at any later time; a commit of that
// kind counts if its row is there, and did not happen if it is not.
//
// Where nothing is raised (fenced is false) the register has no fence.
func operations(reports []workload.Report, there map[string]bool, fenced bool) []porcupine.Operation {
	clients := make(map[string]int)
	type id struct {
		worker string
		number int
	}
	var ops []porcupine.Operation
	open := make(map[id]porcupine.Operation)
	read := make(map[string]string) // by operation
	for _, r := range reports {
		if r.Call == "" || !fenced && r.Outcome == history.Refused {
			continue // a row rule refuses by what is no part of this model
		}
		if !fenced {
			r.Token, r.Nonce = 0, ""
		}
		k := id{r.Worker, r.Number}
		if !r.Ended {
			if _, known := clients[r.Worker]; !known {
				clients[r.Worker] = len(clients)
			}
			in := input{call: r.Call, token: r.Token, nonce: r.Nonce}
			if r.Call == workload.CallCommit {
				in.value, in.after = r.Op, read[r.Worker+r.Op]
			}
			open[k] = porcupine.Operation{ClientId: clients[r.Worker], Input: in, Call: r.At}
			continue
		}
		op := open[k]
		delete(open, k)
		if r.Call == workload.CallRead && r.Outcome == history.Committed {
			read[r.Worker+r.Op] = r.Value
		}
		if op, ok := finished(op, r.Outcome, r.Value, r.At, there); ok {
			ops = append(ops, op)
		}
	}
	for _, op := range open {
		if op, ok := finished(op, history.Unknown, "", never, there); ok {
			ops = append(ops, op)
		}
	}
	return ops
}

func finished(op porcupine.Operation, o history.Outcome, value string, at int64, there map[string]bool) (porcupine.Operation, bool) {
	in := op.Input.(input)
	op.Return = at
	if o == history.Unknown || o == history.Failed {
		op.Return = never
	}
	switch in.call {
	case workload.CallRead:
		if o != history.Committed {
			return op, false
		}
	case workload.CallCommit:
		switch {
		case o == history.Failed:
			return op, false // the history's check knows if it is there all the same
		case o == history.Unknown && there[in.value]:
			o = history.Committed
		case o == history.Unknown:
			return op, false
		}
	}
	op.Output = output{o, value}
	return op, true
}

// A Linearization is porcupine's verdict on one resource.
type Linearization struct {
	Resource   string
	Operations int
	Result     porcupine.CheckResult

	info porcupine.LinearizationInfo
}

// Draw writes porcupine's own picture of it.
func (l Linearization) Draw(path string) error {
	return porcupine.VisualizePath(fencedRegister.ToModel(), l.info, path)
}

// Register asks porcupine, for at most bound per resource.
func Register(s State, t Told, bound time.Duration) (all []Linearization) {
	there := make(map[string]bool)
	for _, r := range s.Rows {
		there[r.Op] = true
	}
	byResource := make(map[string][]workload.Report)
	for _, r := range t.Reports {
		if r.Call != "" {
			byResource[r.Resource] = append(byResource[r.Resource], r)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		l := Linearization{Resource: resource}
		fenced := slices.ContainsFunc(byResource[resource], func(r workload.Report) bool { return r.Call == workload.CallRaise })
		ops := operations(byResource[resource], there, fenced)
		l.Operations = len(ops)
		l.Result, l.info = porcupine.CheckOperationsVerbose(fencedRegister.ToModel(), ops, bound)
		all = append(all, l)
	}
	return all
}
