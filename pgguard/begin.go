package pgguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/guard"
)

// Begin begins a fenced transaction with the server's defaults; see
// [Guard.BeginTx]. It fits pgx.BeginFunc.
func (g *Guard) Begin(ctx context.Context) (pgx.Tx, error) {
	return g.BeginTx(ctx, pgx.TxOptions{})
}

// BeginTx begins a transaction and enters every fence of ctx, in one round trip or,
// with [WithDeferredBegin], in that of its first statement. It returns
// [guard.ErrNoFence], before anything is sent, if ctx carries none. It fits
// pgx.BeginTxFunc and transaction managers.
//
// The fences are those of ctx now; the contexts of later calls do not matter. A
// savepoint (Begin on the transaction) may be rolled back without losing them. A
// statement that would end the transaction behind its back (COMMIT, ROLLBACK, not
// ROLLBACK TO) is refused, and so is, where others come after it in one batch or
// string, a name that another than this transaction has prepared, or EXECUTE: it may
// stand for COMMIT. By itself it is run, and if it did end the transaction, AND CHAIN or
// not, every later call on it is an error, Commit included. Commit returns nil once the transaction is known to be
// committed, [guard.ErrCommitUnknown] where a reply was lost and the outcome
// could not be learned, and an error that says so where it was rolled back. To
// learn it may take 7s, whether or not ctx has ended.
//
// Every isolation level is supported, and both access modes. Deferrable is
// refused, because it has no effect on a transaction that starts by entering;
// so are BeginQuery and CommitQuery, because they may not begin or end what they
// seem to.
//
// At READ COMMITTED each statement sees what was committed before it. Above that
// the transaction sees what was committed before it entered, and a raise since
// then makes it fail with 40001: see [Retryable].
func (g *Guard) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	t, _, err := g.begin(ctx, o, "")
	if err != nil {
		return nil, err
	}
	return t, nil
}

// begin begins a fenced transaction, or prepares to where that is put off. With an
// operation it also claims that, and reports whether it is this transaction's to
// apply.
func (g *Guard) begin(ctx context.Context, o pgx.TxOptions, operation string) (t *tx, first bool, err error) {
	held, err := g.fences(ctx, "begin")
	if err != nil {
		return nil, false, err
	}
	if err := checkOptions(o); err != nil {
		return nil, false, err
	}
	if err := g.ready(ctx); err != nil {
		return nil, false, err
	}
	conn, err := g.acquire(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("pgguard: begin: %w", err)
	}
	t = newTx(conn, translator{g, ctx, held})
	t.options, t.pending = o, true
	switch {
	case operation != "":
		claim := &pgx.QueuedQuery{SQL: g.sql.once, Arguments: []any{operation}}
		claim.QueryRow(func(row pgx.Row) error { return row.Scan(&first) })
		err = t.start(ctx, claim)
	case !g.deferred:
		err = t.start(ctx)
	}
	if err != nil {
		t.abandon(ctx)
		return nil, false, err
	}
	return t, first, nil
}

// start begins a transaction that has not begun. The callbacks of more are called.
func (t *tx) start(ctx context.Context, more ...*pgx.QueuedQuery) error {
	results, err := t.send(ctx, more...)
	if err == nil {
		err = results.Close()
	}
	if err != nil {
		return t.fail(ctx, err)
	}
	return nil
}

// send sends BEGIN, enter and more in one round trip, and reads the answers to the
// first two. Of the results those of more are left; after an error none, and more
// has lost its callbacks.
func (t *tx) send(ctx context.Context, more ...*pgx.QueuedQuery) (pgx.BatchResults, error) {
	o := t.options
	readOnly := o.AccessMode == pgx.ReadOnly
	if readOnly {
		o.AccessMode = pgx.ReadWrite // FOR SHARE, with which enter reads above READ COMMITTED, is a write
	}
	b := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, 4)}
	b.BeginTx(o)
	b.Queue(t.guard.sql.enterText(t.held, true), enterArgs(t.held, t.guard.idleTimeout)...)
	if readOnly {
		b.Queue("set transaction read only")
	}
	own := b.Len()
	b.QueuedQueries = append(b.QueuedQueries, more...)

	results := t.conn.SendBatch(ctx, &b)
	t.Tx, t.pending = results.Tx(), false
	_, err := results.Exec()
	if err == nil {
		err = t.receipt.scan(results.QueryRow())
	}
	if err == nil && readOnly {
		_, err = results.Exec()
	}
	if err != nil {
		for _, q := range more {
			q.Fn = nil // or pgx may call it, with the error of what comes first
		}
		_ = results.Close() // err comes first
		return nil, err
	}
	for _, q := range b.QueuedQueries[:own] {
		q.SQL = "" // or pgx forgets that it has prepared them, if one of more fails
	}
	return results, nil
}

// fail explains why the transaction could not be begun.
func (t *tx) fail(ctx context.Context, err error) error {
	if !t.conn.IsClosed() && t.conn.PgConn().TxStatus() == 'I' {
		t.Tx, t.pending = closedTx, true // nothing has happened
	}
	if refusal := t.translate(err); isRefusal(refusal) {
		err = refusal
	} else {
		err = fmt.Errorf("pgguard: begin: %w", because(ctx, t.guard.sql.missing(err)))
	}
	if !t.pending {
		t.failed = err
	}
	return err
}

func checkOptions(o pgx.TxOptions) error {
	switch {
	case o.BeginQuery != "" || o.CommitQuery != "":
		return errors.New("pgguard: begin: BeginQuery and CommitQuery are not supported in a fenced transaction; set IsoLevel and AccessMode")
	case o.DeferrableMode == pgx.Deferrable:
		return errors.New("pgguard: begin: a fenced transaction cannot be DEFERRABLE; it takes its snapshot when it enters")
	case o.DeferrableMode != "" && o.DeferrableMode != pgx.NotDeferrable:
		return fmt.Errorf("pgguard: begin: unknown deferrable mode %q", o.DeferrableMode)
	}
	switch o.IsoLevel {
	case "", pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted, pgx.ReadUncommitted:
	default:
		return fmt.Errorf("pgguard: begin: unknown isolation level %q", o.IsoLevel)
	}
	switch o.AccessMode {
	case "", pgx.ReadWrite, pgx.ReadOnly:
	default:
		return fmt.Errorf("pgguard: begin: unknown access mode %q", o.AccessMode)
	}
	return nil
}

// fences returns the fences of ctx, all of them valid and at least one.
func fences(ctx context.Context, what string) ([]guard.Fence, error) {
	held := guard.Fences(ctx)
	if len(held) == 0 {
		return nil, fmt.Errorf("pgguard: %s: %w in the context; acquire a lease and use its context; nothing was sent", what, guard.ErrNoFence)
	}
	return held, valid(held)
}

// fences is the function of this name, and tells the observer where there is none.
func (g *Guard) fences(ctx context.Context, what string) ([]guard.Fence, error) {
	held, err := fences(ctx, what)
	if err != nil {
		g.observer.Refused(ctx, err)
	}
	return held, err
}

func valid(held []guard.Fence) error {
	for _, f := range held {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	return nil
}
