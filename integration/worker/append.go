package worker

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
	"github.com/go-fencing/fencing/pgguard"
)

// append carries out one order, in the way in which a user's code would.
func (p *program) append(ctx context.Context, o Order) {
	p.current = o
	waiting, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	lease, err := p.locker.Acquire(waiting, o.Resource)
	if err != nil {
		p.done(nil, history.Failed, err)
		return
	}
	fence := lease.Fence()
	p.step(Leased, Report{Fence: &fence})
	work := lease.Context()
	if !o.Obedient {
		work = guard.NewContext(ctx, fence)
	}
	outcome, err := p.readAndWrite(work, fence)
	p.done(&fence, outcome, err)

	released := Report{Fence: &fence}
	released.explain(lease.Release(ctx))
	p.step(Released, released)
}

func (p *program) done(f *guard.Fence, outcome history.Outcome, err error) {
	r := Report{Fence: f, Outcome: outcome}
	r.explain(err)
	p.step(Done, r)
}

func (p *program) readAndWrite(ctx context.Context, f guard.Fence) (history.Outcome, error) {
	row, err := history.Next(ctx, p.pool, p.current.Op, p.current.Amount, f)
	if err != nil {
		return history.Failed, err
	}
	p.step(Read, Report{Fence: &f})
	if p.Mode == WriteOnly {
		if err := p.guard.Raise(ctx, f); err != nil {
			return outcomeOf(err), err
		}
	}
	switch {
	case p.current.Single:
		_, err = p.guard.Exec(ctx, history.Single, row.Args()...)
	case p.Mode == Fenced, p.Mode == WriteOnly:
		err = p.guard.InTx(ctx, func(tx pgx.Tx) error { return p.write(ctx, tx, row, f) })
	default:
		return p.writeUnfenced(ctx, row, f)
	}
	return outcomeOf(err), err
}

func (p *program) write(ctx context.Context, tx pgx.Tx, row history.Row, f guard.Fence) error {
	r := Report{Fence: &f, Backend: tx.Conn().PgConn().PID()}
	p.step(Entered, r)
	var err error
	if p.Mode == RowRule {
		err = pgguard.UpdateRow(ctx, tx, pgguard.RowUpdate{
			Table: pgx.Identifier{"balance"}, Resource: row.Resource,
			Key: map[string]any{"resource": row.Resource}, Set: map[string]any{"value": row.Balance()},
		})
		if err == nil {
			err = row.Insert(ctx, tx)
		}
	} else {
		err = row.Write(ctx, tx)
	}
	if err == nil {
		p.step(Written, r)
	}
	return err
}

func (p *program) writeUnfenced(ctx context.Context, row history.Row, f guard.Fence) (history.Outcome, error) {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return history.Failed, err
	}
	if err := p.write(ctx, tx, row, f); err != nil {
		return outcomeOf(err), errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	}
	if err := tx.Commit(ctx); err != nil {
		return history.Unknown, err
	}
	return history.Committed, nil
}

func outcomeOf(err error) history.Outcome {
	switch {
	case err == nil:
		return history.Committed
	case errors.Is(err, guard.ErrCommitUnknown):
		return history.Unknown
	case errors.Is(err, guard.ErrStale), errors.Is(err, guard.ErrNotRaised), errors.Is(err, guard.ErrNoFence):
		return history.Refused
	}
	return history.Failed
}
