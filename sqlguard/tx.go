package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-fencing/fencing/guard"
)

// InTx runs fn in a transaction that has entered every fence of ctx, and commits
// it if fn returns nil. It returns
//
//   - [guard.ErrNoFence] if ctx carries no fence: nothing is sent;
//   - [guard.ErrStale] or [guard.ErrNotRaised] if a fence is not the one in force:
//     fn is not run;
//   - fn's error, translated as by [Translate], after a rollback;
//   - [guard.ErrCommitUnknown] if the reply to the commit was lost. pgguard can
//     find out then, this package cannot: read before you write again.
//
// If fn panics the transaction is rolled back and the panic goes on. fn must not
// end the transaction by SQL, and must not keep it.
//
// InTx does not retry. Where [Retryable] says that the error may go away, call
// InTx again: fn runs anew, and so does the check of the fence.
func (g *Guard) InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return g.InTxOptions(ctx, nil, fn)
}

// InTxOptions is [Guard.InTx] with an isolation level and an access mode; nil is
// the default of both.
func (g *Guard) InTxOptions(ctx context.Context, o *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	tx, err := g.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // also after a panic and after runtime.Goexit
			_ = tx.Rollback()
		}
	}()
	if err := fn(tx); err != nil {
		return g.translated(ctx, err, guard.Fences(ctx))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlguard: commit: not sent, %w: %w", errRolledBack, because(ctx, err))
	}
	done = true
	return g.Commit(ctx, tx)
}

// Commit commits a transaction of [Guard.BeginTx], or one of the caller's own in
// which fences were entered, as [Guard.InTx] does: the observer is told, and
// [guard.ErrCommitUnknown] says that the reply was lost. fences are those that were
// entered; every fence of ctx if none is given. ctx does not end the call.
func (g *Guard) Commit(ctx context.Context, tx interface{ Commit() error }, fences ...guard.Fence) error {
	if len(fences) == 0 {
		fences = guard.Fences(ctx)
	}
	err := committed(ctx, g.translated(ctx, tx.Commit(), fences))
	switch {
	case err == nil:
		g.observer.Committed(ctx, fences)
	case errors.Is(err, guard.ErrCommitUnknown):
		g.observer.Refused(ctx, err)
	}
	return err
}

// BeginTx begins a transaction and enters every fence of ctx. It returns
// [guard.ErrNoFence], before anything is sent, if ctx carries none. As always in
// database/sql, the transaction is rolled back when ctx ends.
//
// The fences are those of ctx now; the contexts of later calls do not matter. A
// savepoint may be rolled back without losing them. Commit it with [Guard.Commit]:
// its own Commit is that of database/sql, of which the observer does not hear, and
// which does not tell what is unknown.
//
// Every isolation level is supported that the driver supports. Above READ
// COMMITTED Postgres answers a raise since then with 40001: see [Retryable].
func (g *Guard) BeginTx(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
	held, err := fences(ctx, "begin")
	if err != nil {
		g.observer.Refused(ctx, err)
		return nil, err
	}
	if err := g.ready(ctx); err != nil {
		return nil, err
	}
	if o == nil {
		o = &sql.TxOptions{}
	}
	begin, after := g.engine.begins(*o)
	tx, err := g.begin(within(ctx, held...), begin)
	if err != nil {
		return nil, fmt.Errorf("sqlguard: begin: %w", because(ctx, err))
	}
	err = enter(ctx, g.engine, &g.settings, g.session(tx), held, o.ReadOnly)
	if err == nil && after != "" {
		_, err = tx.ExecContext(within(ctx), after)
	}
	if err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

func (g *Guard) begin(ctx context.Context, o sql.TxOptions) (*sql.Tx, error) {
	if e, ok := g.engine.(sqliteEngine); ok {
		return e.begin(ctx, g.db, o, &g.settings)
	}
	return g.db.BeginTx(ctx, &o)
}

var errRolledBack = errors.New("the transaction was rolled back, nothing was written")

// committed explains the outcome of a commit that was begun while ctx was alive.
func committed(ctx context.Context, err error) error {
	switch {
	case err == nil || isRefusal(err):
		return err
	case answered(err):
		return fmt.Errorf("sqlguard: commit: %w: %w", errRolledBack, err)
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil:
		return fmt.Errorf("sqlguard: commit: not sent, %w: %w", errRolledBack, because(ctx, err))
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("sqlguard: commit: the function has ended its transaction itself: %w", err)
	}
	return fmt.Errorf("sqlguard: commit: %w: %w; read the data before you write it again", guard.ErrCommitUnknown, because(ctx, err))
}
