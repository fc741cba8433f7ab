package pgguard

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// WithDeferredBegin puts off the beginning of transactions: [Guard.InTx] and
// [Guard.BeginTx] send nothing themselves, and the first statement carries BEGIN
// and entering along in its own round trip. A transaction of one statement then
// takes two round trips, which is one fewer than in pgx without a guard. It is off
// by default.
//
// The price: the fence is checked by the first statement and not before it. The
// function that is given to InTx starts although the fence may be stale, and
// whatever it does outside of the database before its first statement (a mail, a
// call, a cache) is done by a stale holder too. Leave the option off where that
// matters. What is read and written in the transaction is fenced as ever.
//
//   - A refusal is the error of the first statement, and then of every call on the
//     transaction, Commit included. [Guard.InTx] returns it whatever the function
//     makes of it; errors.Is finds the function's own error as well.
//   - A transaction that executes nothing enters when it is committed.
//   - While it has not begun a transaction keeps a connection of the pool, and
//     delays no raise.
//   - [Guard.Once] is as it was: it must know whether to run its function.
//
// Exec, Query, QueryRow and SendBatch carry. BEGIN has a round trip of its own if
// something else comes first (Prepare, CopyFrom, a savepoint, and LargeObjects and
// Conn, which take no context and wait 5s at most), and before a statement that
// one of pgx's batches would treat in another way: Exec without arguments, several
// statements in one string, options and rewriters as arguments (but for
// [pgx.NamedArgs]), a text that cannot be prepared, an argument that cannot be
// encoded, and all of [pgx.QueryExecModeSimpleProtocol]. A tracer sees what is
// carried as a batch.
func WithDeferredBegin() Option { return func(o *options) { o.deferred = true } }

// begun begins the transaction if it has not begun, and returns why it could not
// be.
func (t *tx) begun(ctx context.Context) error {
	if t.pending {
		return t.start(ctx)
	}
	if t.closed {
		return nil // pgx has the word for it
	}
	return t.failed
}

// carry begins the transaction if it has not begun. If the statement fits it is
// sent along, and its results are returned, to be closed. Without results the
// statement is to be sent now.
func (t *tx) carry(ctx context.Context, sql string, args []any, fits bool) (pgx.BatchResults, error) {
	if !t.pending || !fits || t.guard.simple || !isSingle(sql) || !carriable(args) {
		return nil, t.begun(ctx)
	}
	return t.sendAlong(ctx, &pgx.QueuedQuery{SQL: sql, Arguments: args})
}

// carryBatch is carry for a batch.
func (t *tx) carryBatch(ctx context.Context, b *pgx.Batch) (pgx.BatchResults, error) {
	if !t.pending || t.guard.simple || b.Len() == 0 || beginsTx(b) {
		return nil, t.begun(ctx)
	}
	queries := make([]*pgx.QueuedQuery, b.Len())
	for i, q := range b.QueuedQueries { // copies, because pgx takes notes on a query and b may have to be sent again
		queries[i] = &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments, Fn: callback(q)}
	}
	return t.sendAlong(ctx, queries...)
}

// callback returns the callback that q has when its result is read, as pgx looks for
// it then: it may be set after the batch was sent.
func callback(q *pgx.QueuedQuery) func(pgx.BatchResults) error {
	return func(results pgx.BatchResults) error {
		if q.Fn != nil {
			return q.Fn(results)
		}
		_, err := results.Exec()
		return err
	}
}

// sendAlong begins the transaction with queries, or without them if pgx refuses to
// send them: in a transaction that has begun it does so without harm, or the server
// does, and aborts the transaction.
func (t *tx) sendAlong(ctx context.Context, queries ...*pgx.QueuedQuery) (pgx.BatchResults, error) {
	results, err := t.send(ctx, queries...)
	if err == nil {
		return results, nil
	}
	if _, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err); unsent && t.conn.IsClosed() {
		// That is how pgx drops a batch of which it cannot encode an argument.
		t.pooled.Release()
		conn, acquireErr := t.guard.pool.Acquire(ctx)
		if acquireErr != nil {
			return nil, t.fail(ctx, acquireErr)
		}
		t.pooled, t.conn = conn, conn.Conn()
	}
	if t.conn.IsClosed() || t.conn.PgConn().TxStatus() != 'I' {
		return nil, t.fail(ctx, err)
	}
	return nil, t.start(ctx)
}

// carriable reports whether a batch takes args as a single statement does. Other
// rewriters than pgx's own may make anything of a statement.
func carriable(args []any) bool {
	if checkArgs(args) != nil {
		return false
	}
	if len(args) == 0 {
		return true
	}
	switch args[0].(type) {
	case pgx.NamedArgs, pgx.StrictNamedArgs:
		return len(args) == 1
	case pgx.QueryRewriter:
		return false
	}
	return true
}

// isSingle reports whether sql is one statement.
func isSingle(sql string) bool {
	count := 0
	scanSQL(sql, func([3]string) bool { count++; return count < 2 })
	return count == 1
}

// Conn returns pgx's connection, in a transaction that has begun. Where that fails
// everything does that is done on the connection.
func (t *tx) Conn() *pgx.Conn {
	t.beginNow()
	return t.conn
}

// LargeObjects returns pgx's access to large objects, as Conn returns the
// connection.
func (t *tx) LargeObjects() pgx.LargeObjects {
	t.beginNow()
	return t.Tx.LargeObjects()
}

// beginNow begins the transaction in a call that has neither a context nor an
// error: the next one tells.
func (t *tx) beginNow() {
	if !t.pending {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), cleanupBound)
	defer cancel()
	if err := t.start(ctx); t.pending {
		_ = t.conn.Close(ctx) // on which statements would run by themselves
		t.failed, t.pending = err, false
	}
}
