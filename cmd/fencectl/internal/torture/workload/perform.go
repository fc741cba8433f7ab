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
	waiting, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	h, err := p.locks.acquire(waiting, o.Resource)
	if err != nil {
		p.done(Report{Outcome: history.Failed}, err)
		p.step(Released, Report{})
		return
	}
	r := Report{Token: h.fence.Token, Nonce: h.fence.Nonce}
	p.step(Leased, r)
	work := h.ctx
	if !o.Obedient {
		work = ctx
		if h.fence.Token > 0 {
			work = guard.NewContext(ctx, h.fence)
		}
	}
	work, cancel = context.WithTimeout(work, callBound)
	defer cancel()
	r.Outcome, r.Torn, err = p.readAndWrite(work, h.fence)
	p.done(r, err)

	r = Report{Token: h.fence.Token, Nonce: h.fence.Nonce}
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
	row         history.Row
	left, right int64 // the accounts, of a transfer
	there       bool  // the row, of a toggle
}

func (p *program) readAndWrite(ctx context.Context, f guard.Fence) (outcome history.Outcome, torn string, err error) {
	was, err := p.read(ctx, f)
	if err != nil {
		return history.Failed, "", err
	}
	if p.current.Kind == Transfer && was.left+was.right != Total {
		torn = fmt.Sprintf("%d + %d is not %d", was.left, was.right, Total)
	}
	p.step(Read, Report{})
	if p.current.Repeat {
		if err := p.raise(ctx, f); err != nil {
			if errors.Is(err, guard.ErrStale) {
				return history.Refused, torn, err
			}
			return history.Failed, torn, err // the transaction was not begun
		}
	}
	p.call(CallCommit, f, func(r *Report) {
		written := false
		err = p.store.inTx(ctx, f, func(tx writer) error {
			p.step(Entered, Report{})
			if err := p.write(ctx, tx, was); err != nil {
				return err
			}
			p.step(Written, Report{})
			written = true
			return nil
		})
		// What the commit itself answers is definite only from those who look into it.
		r.Outcome = outcomeOf(err, written && !p.store.definite())
		r.explain(err)
		outcome = r.Outcome
	})
	return outcome, torn, err
}

func (p *program) read(ctx context.Context, f guard.Fence) (was plan, err error) {
	p.call(CallRead, f, func(r *Report) {
		was.row, err = history.Next(ctx, p.pool, p.current.Op, p.amount(), f)
		was.row.Holder = p.Name
		r.Value, r.Outcome = was.row.Previous, outcomeOf(err, true)
		r.explain(err)
	})
	if err != nil {
		return was, err
	}
	const account = "SELECT value FROM account WHERE resource = $1 AND side = $2"
	switch p.current.Kind {
	case Transfer:
		if err := p.pool.QueryRow(ctx, account, f.Resource, "left").Scan(&was.left); err != nil {
			return was, err
		}
		p.step(Between, Report{})
		return was, p.pool.QueryRow(ctx, account, f.Resource, "right").Scan(&was.right)
	case Toggle:
		return was, p.pool.QueryRow(ctx, "SELECT count(*) > 0 FROM item WHERE resource = $1", f.Resource).Scan(&was.there)
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
	if err := tx.append(ctx, was.row); err != nil {
		return err
	}
	resource, amount := was.row.Resource, p.current.Amount
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
