package torture

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/oracle"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/history"
)

const (
	quietBound     = 30 * time.Second // for the backends of the workers to end
	porcupineBound = 20 * time.Second // for one resource of a guarded variant
	controlBound   = 5 * time.Second  // of a control, which others see break as well
)

// judge ends the workers, and holds what they have said against what is there.
func (r *run) judge(ctx context.Context) (*Result, error) {
	if err := r.dismiss(); err != nil {
		return nil, err
	}
	// The backend of a dead worker may still be at work.
	err := until(ctx, quietBound, func() error {
		var n int
		err := r.stage.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, $1)", r.clients()).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d backends of workers are still there", n)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	state, err := r.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	result := &Result{Seed: r.options.Seed, Seconds: r.options.Length.Seconds(), Servers: r.stage.about, LeftOut: r.leftOut(), Recovered: r.recovered.Seconds(), Witnesses: r.witnesses(), Faults: r.faults(), incidents: r.incidents, started: r.started}
	for _, v := range slices.Concat(workload.Guarded, workload.Controls) {
		result.Variants = append(result.Variants, r.verdict(v, state))
	}
	result.conclude()
	return result, nil
}

func (r *run) verdict(v workload.Variant, state oracle.State) *Verdict {
	j := r.journals[v]
	outcomes, reports := j.all()
	told := oracle.Told{Variant: v, Outcomes: outcomes, Reports: reports}
	state = state.Of(resources(v))
	state.Pairs = j.pairs()
	d := &Verdict{
		Variant: v, Control: !v.IsGuarded(), Operations: len(outcomes),
		Committed: j.count(history.Committed), Refused: j.count(history.Refused), Failed: j.count(history.Failed), Unknown: j.count(history.Unknown),
		Violations: append(oracle.Check(state, told), r.broken[v]...), told: told, state: state, resourceOf: j.resourceOf,
	}
	bound := porcupineBound
	if d.Control {
		bound = controlBound
	}
	d.linear = oracle.Register(state, told, bound)
	for _, l := range d.linear {
		switch l.Result {
		case porcupine.Illegal:
			d.Violations = append(d.Violations, history.Violation{Kind: oracle.Linearizable, Text: fmt.Sprintf("%q: no order of its %d calls explains all answers", l.Resource, l.Operations)})
		case porcupine.Unknown:
			d.Undecided++
		}
	}
	d.count()
	return d
}

// load reads everything that there is.
func (r *run) load(ctx context.Context) (s oracle.State, err error) {
	s.Accounts, s.Items = make(map[string][2]int64), make(map[string]int)
	err = r.stage.inSchema(ctx, func(tx pgx.Tx) error {
		if s.Rows, s.Balances, err = history.Load(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT resource, op, what, amount FROM effect")
		if err != nil {
			return err
		}
		if s.Effects, err = pgx.CollectRows(rows, pgx.RowToStructByPos[oracle.Effect]); err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, "SELECT resource, sum(value) FILTER (WHERE side = 'left')::bigint, sum(value) FILTER (WHERE side = 'right')::bigint FROM account GROUP BY 1"); err != nil {
			return err
		}
		var resource string
		var both [2]int64
		if _, err = pgx.ForEachRow(rows, []any{&resource, &both[0], &both[1]}, func() error { s.Accounts[resource] = both; return nil }); err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, "SELECT resource, count(*) FROM item GROUP BY 1"); err != nil {
			return err
		}
		var n int
		_, err = pgx.ForEachRow(rows, []any{&resource, &n}, func() error { s.Items[resource] = n; return nil })
		return err
	})
	if err != nil {
		return s, err
	}
	s.Log, err = r.loadLog(ctx)
	return s, err
}

var (
	inserted  = regexp.MustCompile(`^table \S+\.history: INSERT: `)
	operation = regexp.MustCompile(` op\[text\]:'([^']*)'`)
)

// loadLog returns the operations in the order of their commits.
func (r *run) loadLog(ctx context.Context) (ops []string, err error) {
	if r.stage.slot == "" {
		rows, err := r.stage.pool.Query(ctx, "SELECT op FROM "+pgx.Identifier{r.stage.name, "commits"}.Sanitize()+" ORDER BY place")
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	rows, err := r.stage.pool.Query(ctx, "SELECT data FROM pg_logical_slot_get_changes($1, NULL, NULL, 'skip-empty-xacts', '1')", r.stage.slot)
	if err != nil {
		return nil, err
	}
	var data string
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		if !inserted.MatchString(data) {
			return nil
		}
		op := operation.FindStringSubmatch(data)
		if op == nil {
			return errors.New("the log has a row of the history without an operation")
		}
		ops = append(ops, op[1])
		return nil
	})
	return ops, err
}

// leftOut says which faults were asked for and cannot be caused here.
func (r *run) leftOut() (faults []Fault) {
	for _, f := range r.options.Faults {
		if !r.may(f) {
			faults = append(faults, f)
		}
	}
	return faults
}
