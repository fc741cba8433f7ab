package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
)

// perform carries out one order, in the way in which a user's code would.
func (p *program) perform(ctx context.Context, o Order) {
	p.current = o
	p.mu.Lock()
	p.op = o.Op
	p.mu.Unlock()
	select {
	case <-p.goOn: // meant for the operation before, which did not get to where it was to wait
	default:
	}
	waiting, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	wanted := []string{o.Resource}
	if o.Also != "" {
		wanted = append(wanted, o.Also)
	}
	h, err := p.locks.acquire(waiting, wanted...)
	if err != nil {
		p.done(Report{Outcome: history.Failed}, err)
		p.step(Released, Report{})
		return
	}
	fences := h.fences
	if len(fences) == 2 && fences[0].Resource != o.Resource {
		fences[0], fences[1] = fences[1], fences[0]
	}
	p.step(Leased, about(fences[0]))
	work := h.ctx
	if !o.Obedient {
		work = ctx
		if fences[0].Token > 0 {
			work = guard.NewContext(ctx, fences...)
		}
	}
	work, cancel = context.WithTimeout(work, callBound)
	defer cancel()
	r := about(fences[0])
	r.Outcome, r.Torn, err = p.readAndWrite(work, fences)
	p.done(r, err)

	r = about(fences[0])
	bounded, cancel := context.WithTimeout(ctx, releaseBound)
	defer cancel()
	r.explain(h.release(bounded))
	p.step(Released, r)
}

func (p *program) done(r Report, err error) {
	r.explain(err)
	p.step(Done, r)
}

// A plan is what was read, and what follows from it.
type plan struct {
	rows        []history.Row // one for each resource
	left, right int64         // the accounts, of a transfer
	there       bool          // the row, of a toggle
}

func (p *program) readAndWrite(ctx context.Context, fences []guard.Fence) (outcome history.Outcome, torn string, err error) {
	was, err := p.read(ctx, fences)
	if err != nil {
		return history.Failed, "", err
	}
	if p.current.Kind == Transfer && was.left+was.right != Total {
		torn = fmt.Sprintf("%d + %d is not %d", was.left, was.right, Total)
	}
	p.step(Read, Report{})
	if p.current.Repeat {
		if err := p.raise(ctx, fences[0]); err != nil {
			if errors.Is(err, guard.ErrStale) {
				return history.Refused, torn, err
			}
			return history.Failed, torn, err // the transaction was not begun
		}
	}
	p.call(CallCommit, func(r *Report) {
		var ambiguous bool
		ambiguous, err = p.commit(ctx, was, fences[0])
		r.Outcome = outcomeOf(err, ambiguous)
		r.explain(err)
		outcome = r.Outcome
	}, was.rows...)
	return outcome, torn, err
}

// commit writes and commits. An error is ambiguous if it may have come after a commit
// was sent, in a way of writing that does not look into what became of it.
func (p *program) commit(ctx context.Context, was plan, f guard.Fence) (ambiguous bool, err error) {
	way := p.current.Way
	if way == Single {
		return !p.store.definite(way), p.store.single(ctx, was.rows[0])
	}
	written := false
	err = p.store.inTx(ctx, way, p.current.Op, f, func(tx writer) error {
		if way == Savepoint {
			err := tx.undone(ctx, func(tx writer) error {
				return tx.exec(ctx, history.SetBalance, f.Resource, -1)
			})
			if err != nil {
				return err
			}
		}
		p.step(Entered, Report{})
		if err := p.write(ctx, tx, was); err != nil {
			return err
		}
		p.step(Written, Report{})
		written = true
		return nil
	})
	return written && !p.store.definite(way), err
}

func (p *program) read(ctx context.Context, fences []guard.Fence) (was plan, err error) {
	for i, f := range fences {
		op, amount := p.current.Op, p.amount()
		if i == 1 {
			op, amount = AlsoOp(op), 1
		}
		row := history.Row{Op: op, Resource: f.Resource, Token: f.Token, Nonce: f.Nonce}
		p.call(CallRead, func(r *Report) {
			row, err = history.Next(ctx, p.pool, op, amount, f)
			row.Holder = p.Name
			r.Value, r.Outcome = row.Previous, outcomeOf(err, true)
			r.explain(err)
		}, row)
		if err != nil {
			return was, err
		}
		was.rows = append(was.rows, row)
	}
	const account = "SELECT value FROM account WHERE resource = $1 AND side = $2"
	resource := fences[0].Resource
	switch p.current.Kind {
	case Transfer:
		if err := p.pool.QueryRow(ctx, account, resource, "left").Scan(&was.left); err != nil {
			return was, err
		}
		p.step(Between, Report{})
		return was, p.pool.QueryRow(ctx, account, resource, "right").Scan(&was.right)
	case Toggle:
		return was, p.pool.QueryRow(ctx, "SELECT count(*) > 0 FROM item WHERE resource = $1", resource).Scan(&was.there)
	}
	return was, nil
}

// amount is what the append adds to the balance.
func (p *program) amount() int64 {
	if p.current.Kind == Append {
		return p.current.Amount
	}
	return 0
}

func (p *program) write(ctx context.Context, tx writer, was plan) error {
	for _, row := range was.rows {
		if err := tx.append(ctx, row); err != nil {
			return err
		}
	}
	resource, amount := was.rows[0].Resource, p.current.Amount
	effect := p.current.Kind
	switch p.current.Kind {
	case Append:
		return nil
	case Transfer:
		const set = "UPDATE account SET value = $3 WHERE resource = $1 AND side = $2"
		if err := tx.exec(ctx, set, resource, "left", was.left-amount); err != nil {
			return err
		}
		if err := tx.exec(ctx, set, resource, "right", was.right+amount); err != nil {
			return err
		}
	case Toggle:
		sql := "INSERT INTO item (resource, op) VALUES ($1, $2)"
		effect = "insert"
		if was.there {
			sql, effect = "DELETE FROM item WHERE resource = $1 AND $2 <> ''", "delete"
		}
		if err := tx.exec(ctx, sql, resource, p.current.Op); err != nil {
			return err
		}
	}
	return tx.exec(ctx, "INSERT INTO effect (resource, op, what, amount) VALUES ($1, $2, $3, $4)", resource, p.current.Op, string(effect), amount)
}
