package pgguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// InTx runs fn in a transaction that has entered every fence of ctx, and commits
// it if fn returns nil. It returns
//
//   - [guard.ErrNoFence] if ctx carries no fence: nothing is sent;
//   - [guard.ErrStale] or [guard.ErrNotRaised] if the server refuses a fence: fn
//     is not run (but see [WithDeferredBegin]);
//   - fn's error, after a rollback that does not depend on ctx. Where it comes from the
//     end of ctx, the cause of that is added: lock.ErrLost of a lease that was lost;
//   - what Commit returns, see [Guard.BeginTx].
//
// BEGIN and entering take one round trip, or none of their own with
// [WithDeferredBegin]. If fn panics the transaction is rolled
// back and the panic goes on. fn must not end the transaction itself, which the
// error says where it did and returned nil, and must not keep it.
//
// Everything that fn does goes through tx. A call of the guard itself
// in fn, as of a repository that was not given tx, is a transaction of its own: while a
// raise waits for this one it stands in line behind that raise, and nothing gets on
// until the idle timeout ends this transaction.
//
// InTx does not retry. Where [Retryable] says that the error may go away, call
// InTx again: fn runs anew, and so does the check of the fence. Never retry
// ErrStale with the same fence.
func (g *Guard) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return g.InTxOptions(ctx, pgx.TxOptions{}, fn)
}

// InTxOptions is [Guard.InTx] with an isolation level and an access mode; see
// [Guard.BeginTx] for what it supports.
func (g *Guard) InTxOptions(ctx context.Context, o pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	t, _, err := g.begin(ctx, o, "")
	if err != nil {
		return err
	}
	return t.run(ctx, fn)
}

// run runs fn and ends the transaction, by whatever way fn is left: an error, a
// panic, or runtime.Goexit.
func (t *tx) run(ctx context.Context, fn func(tx pgx.Tx) error) error {
	done := false
	defer func() {
		if !done {
			t.abandon(ctx)
		}
	}()
	if fn == nil {
		return errors.New("pgguard: the function is nil; nothing was written")
	}
	err := fn(t)
	switch {
	case t.failed == nil:
	case err == nil || errors.Is(err, t.failed):
		return cmp.Or(err, t.failed)
	default: // the function has kept to itself that nothing was run under the fence
		return fmt.Errorf("%w: %w", t.failed, err)
	}
	if err != nil {
		return t.guard.refused(t.ctx, err, t.held) // not every error of fn is of this transaction
	}
	done = true
	if t.ending != nil {
		return t.ending
	}
	return t.Commit(ctx)
}
