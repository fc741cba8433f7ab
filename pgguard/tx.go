package pgguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
)

// errEnded: the server says that the connection is in no transaction although the
// caller has neither committed nor rolled back.
var errEnded = errors.New("a statement has ended the fenced transaction; whether it was committed is not known here, and nothing after it is fenced")

// A tx is a fenced transaction. Like any pgx.Tx it is for one goroutine at a time.
type tx struct {
	statements
	pooled  *pgxpool.Conn // goes back to the pool when the transaction ends
	conn    *pgx.Conn     // the same, which pooled then forgets
	options pgx.TxOptions
	pending bool  // it has not begun, see WithDeferredBegin
	failed  error // why it could not be begun, or not be entered
	receipt receipt
	closed  bool
	ending  error           // of a function that was not to end it
	named   map[string]bool // the statements that it has prepared, of which it knows the text
	unknown pgx.Rows        // the last ones of a statement of which it does not
	left    bool            // such a statement ended it, and may have begun another one
}

// What InTx returns where the function has ended the transaction and returned nil.
var (
	errCommitted = fmt.Errorf("pgguard: the function ended the transaction itself (Commit succeeded: it is written); return nil instead of calling Commit: %w", pgx.ErrTxClosed)
	errUndone    = fmt.Errorf("pgguard: the function ended the transaction itself (Rollback: nothing was written); return an error instead of calling Rollback: %w", pgx.ErrTxClosed)
)

// newTx returns a transaction that has yet to begin on conn.
func newTx(conn *pgxpool.Conn, tr translator) *tx {
	t := &tx{pooled: conn, conn: conn.Conn()}
	t.statements = statements{Tx: closedTx, outer: t, translator: tr}
	return t
}

// closedTx is pgx's transaction as long as there is none.
var closedTx = func() pgx.Tx {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&b, pgx.ErrTxClosed).Tx()
}()

// Commit commits the transaction; see [Guard.BeginTx].
func (t *tx) Commit(ctx context.Context) error {
	if t.closed {
		return t.Rollback(ctx) // it is pgx.ErrTxClosed, and gives back what BEGIN left behind if that failed
	}
	err := t.commit(ctx)
	switch {
	case err == nil:
		t.guard.observer.Committed(t.ctx, t.held)
	case errors.Is(err, guard.ErrCommitUnknown):
		t.guard.observer.Refused(t.ctx, err)
	}
	t.ending = errCommitted
	if err != nil {
		t.ending = fmt.Errorf("pgguard: the function ended the transaction itself (Commit failed); return its error: %w", err)
	}
	return err
}

func (t *tx) commit(ctx context.Context) error {
	if t.ended() {
		t.abandon(ctx)
		return fmt.Errorf("pgguard: commit: %w", errEnded)
	}
	if err := ctx.Err(); err != nil && t.failed == nil {
		t.abandon(ctx)
		return fmt.Errorf("pgguard: commit: not sent, %w: %w", errRolledBack, because(ctx, err))
	}
	if err := t.begun(ctx); err != nil {
		t.abandon(ctx)
		return err
	}
	// What pgx cannot send is told apart now. Afterwards pgconn.SafeToRetry cannot
	// tell: in pgx 5.12 it is true as well if the connection ends after COMMIT was
	// sent and before the reply.
	conn := t.conn.PgConn()
	unsent := conn.IsClosed() || conn.IsBusy()
	t.closed = true
	err := t.Tx.Commit(ctx)
	t.pooled.Release() // before the outcome is asked for, which takes a connection
	switch {
	case err == nil:
		return nil
	case unsent: // pgx closes the connection
		return fmt.Errorf("pgguard: commit: not sent, %w: %w", errRolledBack, because(ctx, err))
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("pgguard: commit: %w: a statement had failed; return its error from the function, or run what may fail in a savepoint (tx.Begin): %w", errRolledBack, err)
	case answered(err):
		return t.translate(err)
	default:
		err, _ = t.guard.sleptIn(err)
		return t.guard.settle(ctx, t.receipt, because(ctx, err))
	}
}

// Rollback rolls the transaction back.
func (t *tx) Rollback(ctx context.Context) error {
	if !t.closed {
		t.ending = errUndone
	}
	pending := t.pending
	t.closed, t.pending = true, false
	defer t.pooled.Release()
	if pending {
		return nil
	}
	return t.Tx.Rollback(ctx)
}

// abandon rolls back even if ctx is dead. Where the server cannot be told, the
// pool closes the connection, which has the same effect.
func (t *tx) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
	defer cancel()
	_ = t.Rollback(ctx)
}

// ended reports whether some statement ended the transaction in the server, which
// pgx does not notice. While results are read, the status is that of before. After
// COMMIT AND CHAIN it is that of another transaction.
func (t *tx) ended() bool {
	if t.closed || t.pending {
		return false
	}
	conn := t.conn.PgConn()
	if t.unknown != nil && !conn.IsBusy() {
		t.left = t.left || isEnd(t.unknown.CommandTag())
		t.unknown = nil
	}
	return t.left || !conn.IsClosed() && !conn.IsBusy() && conn.TxStatus() == 'I'
}

// A savepoint is a nested fenced transaction. The fences were entered before it,
// so rolling it back does not give them up.
type savepoint struct{ statements }

// Commit releases the savepoint.
func (s *savepoint) Commit(ctx context.Context) error {
	return s.translate(s.Tx.Commit(ctx))
}

// statements is what a fenced transaction and its savepoints do alike: check that
// the transaction is still the fenced one and stays it, run the statement on pgx,
// translate its error. The methods that it leaves to pgx as they are: Rollback,
// LargeObjects, Conn. What may be a transaction's first call begins it, see
// [tx.begun] and [tx.carry].
type statements struct {
	pgx.Tx
	outer *tx
	translator
}

func (s *statements) check(sql string) error {
	if s.outer.ended() {
		return fmt.Errorf("pgguard: %w", errEnded)
	}
	if !s.outer.closed { // after which the connection is another's
		if err := checkSession(s.outer.conn); err != nil {
			return fmt.Errorf("pgguard: %w", err)
		}
	}
	return checkInTx(sql)
}

// checkQueued is the function of this name, and knows the names of statements that
// were checked when this transaction prepared them. What a rewriter makes is checked so
// in a single call too.
func (s *statements) checkQueued(sql string) error {
	if s.outer.named[sql] {
		return checkInTx(sql) // the simple protocol knows no names
	}
	return checkQueued(sql)
}

// isKnown reports whether the text of the statement is known that sql is or stands for.
func (s *statements) isKnown(sql string) bool { return isCommand(sql) || s.outer.named[sql] }

// checkBegun is check for a call that carries nothing: it has the transaction begun.
func (s *statements) checkBegun(ctx context.Context, sql string) error {
	if err := s.check(sql); err != nil {
		return err
	}
	return s.outer.begun(ctx)
}

// Begin sets a savepoint.
func (s *statements) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := s.checkBegun(ctx, ""); err != nil {
		return nil, err
	}
	inner, err := s.Tx.Begin(ctx)
	if err != nil {
		return nil, s.translate(err)
	}
	return &savepoint{statements{Tx: inner, outer: s.outer, translator: s.translator}}, nil
}

func (s *statements) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := s.execRaw(ctx, sql, args...)
	if isEnd(tag) && !s.isKnown(sql) {
		s.outer.left = true
	}
	return tag, s.translate(err)
}

// execRaw is Exec with the server's own error.
func (s *statements) execRaw(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := s.check(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	args = checkRewritten(args, s.checkQueued)
	results, err := s.outer.carry(ctx, sql, args, len(args) > 0)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	if results == nil {
		return s.Tx.Exec(ctx, sql, args...)
	}
	tag, err := results.Exec()
	return tag, endBatch(results, err)
}

func (s *statements) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := s.query(ctx, sql, args...)
	if !s.isKnown(sql) {
		s.outer.unknown = rows
	}
	return rows, err
}

func (s *statements) query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := s.check(sql); err != nil {
		return noRows{err}, err
	}
	args = checkRewritten(args, s.checkQueued)
	results, err := s.outer.carry(ctx, sql, args, true)
	if err != nil {
		return noRows{err}, err
	}
	if results == nil {
		rows, err := s.Tx.Query(ctx, sql, args...)
		return wrapRows(rows, err, s.translate)
	}
	return lastRows(results, func(err error) error { return s.translate(endBatch(results, err)) })
}

func (s *statements) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := s.check(sql); err != nil {
		return noRow{err}
	}
	if s.outer.pending || s.outer.failed != nil || !s.isKnown(sql) {
		return firstRow(s.Query(ctx, sql, args...))
	}
	return txRow{s.Tx.QueryRow(ctx, sql, checkRewritten(args, s.checkQueued)...), s.translate}
}

func (s *statements) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := s.checkBegun(ctx, sql); err != nil {
		return nil, err
	}
	sd, err := s.Tx.Prepare(ctx, name, sql)
	if err != nil {
		return nil, s.translate(err)
	}
	if s.outer.named == nil {
		s.outer.named = map[string]bool{}
	}
	s.outer.named[name] = isCommand(sql)
	return sd, nil
}

func (s *statements) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := s.check(""); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	begins := beginsTx(b)
	for i, q := range b.QueuedQueries {
		check := s.checkQueued
		if i == 0 && begins { // that of Batch.BeginTx is one word
			check = checkInTx
		}
		if err := check(q.SQL); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		q.Arguments = checkRewritten(q.Arguments, s.checkQueued)
	}
	results, err := s.outer.carryBatch(ctx, b)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	if results == nil {
		return &txResults{s.Tx.SendBatch(ctx, b), s.translate}
	}
	return carriedResults{&txResults{results, s.translate}}
}

func (s *statements) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := s.checkBegun(ctx, ""); err != nil {
		return 0, err
	}
	n, err := s.Tx.CopyFrom(ctx, table, columns, rows)
	return n, s.translate(err)
}
