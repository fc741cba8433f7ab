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
//   - fn's error, translated as by [Translate], after a rollback. Where it comes from the
//     end of ctx, the cause of that is added: lock.ErrLost of a lease that was lost;
//   - [guard.ErrCommitUnknown] if the reply to the commit was lost. pgguard can
//     find out then, this package cannot: read before you write again. Also if the
//     transaction had ended before, see below.
//
// If fn panics the transaction is rolled back and the panic goes on. fn must not
// end the transaction by SQL, and must not keep it; in MySQL it has to close its
// rows.
//
// fn must return the errors of its statements. With some of them, such as a
// deadlock, MySQL and MariaDB roll the whole transaction back by themselves, and so
// does SQLite for INSERT OR ROLLBACK, RAISE(ROLLBACK) and a full disk. What fn runs
// after that is committed statement by statement and without a fence. InTx says so,
// but it cannot take that back; and in SQLite it does not see it if fn goes on with a
// SAVEPOINT that it does not release, which begins another transaction. On a database
// of [Wrap] nothing is run after such an error: use that for code which swallows
// errors, or runs a statement again.
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
	if fn == nil {
		return errors.New("sqlguard: the function is nil; nothing was written")
	}
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
//
// In MySQL and MariaDB the commit of a transaction that is not there any more
// succeeds. Hence a tx that is a [Tx] is asked before, in a round trip, and the
// error is guard.ErrCommitUnknown if it had ended. Where autocommit is 0 there is always
// a transaction, and nobody can tell which: that is an error, and nothing is committed.
// MySQL is asked that only once.
func (g *Guard) Commit(ctx context.Context, tx interface{ Commit() error }, fences ...guard.Fence) error {
	if len(fences) == 0 {
		fences = guard.Fences(ctx)
	}
	err := g.ended(ctx, tx)
	if err == nil {
		err = committed(ctx, g.translated(ctx, tx.Commit(), fences))
	}
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
	err = enter(ctx, g.engine, &g.settings, g.session(tx), held, entering{readOnly: o.ReadOnly, first: true})
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

// ended returns an error, after a rollback, if the database has ended the
// transaction before its commit. Of a transaction that can only be committed it
// cannot find out.
func (g *Guard) ended(ctx context.Context, tx interface{ Commit() error }) error {
	inner, ok := tx.(Tx)
	if !ok {
		return nil
	}
	open, err := g.engine.open(within(context.WithoutCancel(ctx)), sqlSession{inner})
	if open && err == nil || errors.Is(err, sql.ErrTxDone) || errors.Is(err, errLost) || errors.Is(err, errNotEntered) {
		return nil // the commit says so
	}
	if r, ok := tx.(interface{ Rollback() error }); ok {
		_ = r.Rollback()
	}
	if err != nil {
		return fmt.Errorf("sqlguard: commit: not sent, because nobody knows whether the transaction is still there: %w", because(ctx, err))
	}
	return fmt.Errorf("sqlguard: commit: %w: %w", guard.ErrCommitUnknown, errEnded)
}

var errEnded = errors.New("the transaction had ended before: either the database rolled it back after an error, such as a deadlock, and the function went on, " +
	"or the function ended it by SQL; what it wrote after that was written without a fence; read the data, and see the documentation of InTx")

var errRolledBack = errors.New("the transaction was rolled back, nothing was written")

// committed explains the outcome of a commit that was begun while ctx was alive.
func committed(ctx context.Context, err error) error {
	switch {
	case err == nil || isRefusal(err):
		return err
	case noTransaction(err):
		return fmt.Errorf("sqlguard: commit: %w: %w: %w", guard.ErrCommitUnknown, errEnded, err)
	case answered(err):
		return fmt.Errorf("sqlguard: commit: %w: %w", errRolledBack, err)
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil:
		return fmt.Errorf("sqlguard: commit: not sent, %w: %w", errRolledBack, because(ctx, err))
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("sqlguard: commit: the function has ended its transaction itself: %w", err)
	}
	return fmt.Errorf("sqlguard: commit: %w: %w; read the data before you write it again", guard.ErrCommitUnknown, because(ctx, err))
}
