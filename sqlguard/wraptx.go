package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/go-fencing/fencing/guard"
)

// A transaction is an open one of a conn.
type transaction struct {
	conn     *conn
	inner    driver.Tx
	ctx      context.Context // that it was begun with, for the observer
	held     []guard.Fence   // entered when it began: no savepoint can undo that
	readOnly bool
	implicit bool  // of one statement
	lost     error // why it can only be rolled back, if the database has not done so: errLost or errNotEntered
}

// fenced reports whether there is a transaction, and it has entered a fence when it
// began.
func (t *transaction) fenced() bool { return t != nil && len(t.held) > 0 }

// begin begins a transaction that enters held. entered are fences that a Guard
// enters by itself.
func (c *conn) begin(ctx context.Context, o driver.TxOptions, held, entered []guard.Fence) (*transaction, error) {
	if c.tx != nil {
		return nil, errOpenRows
	}
	options, after := o, ""
	if len(held) > 0 {
		var begin sql.TxOptions
		begin, after = c.engine.begins(sql.TxOptions{Isolation: sql.IsolationLevel(o.Isolation), ReadOnly: o.ReadOnly})
		options.ReadOnly = begin.ReadOnly
	}
	var inner driver.Tx
	begin := func() (err error) { inner, err = beginOn(within(ctx), c.inner, options); return err }
	var err error
	if len(held) > 0 && c.dialect == SQLite { // some drivers take the write lock here, with _txlock=immediate
		_, err = untilFree(ctx, c.lockTimeout, enterPoll, begin)
	} else {
		err = begin()
	}
	if err != nil {
		return nil, fmt.Errorf("sqlguard: begin: %w", because(ctx, err))
	}
	t := &transaction{ctx: ctx, conn: c, inner: inner, held: slices.Concat(held, entered), readOnly: o.ReadOnly}
	c.tx = t
	session := driverSession{c.inner}
	if len(held) > 0 {
		err = enter(ctx, c.engine, &c.settings, session, held, entering{readOnly: o.ReadOnly, first: true})
	}
	if on, _ := c.engine.readOnly(); err == nil && o.ReadOnly && on != "" {
		after = on
	}
	if err == nil && after != "" {
		_, err = session.exec(within(ctx), after)
	}
	if err != nil {
		_ = t.Rollback()
		return nil, err
	}
	return t, nil
}

// admit lets a statement into the transaction, after entering the fences of its
// context that were not entered at the beginning. It does not remember these: a
// rollback to a savepoint may undo them. A fence that could not be entered ends the
// transaction: with some errors, such as a changed snapshot, the database has rolled
// it back, and the fences of the beginning are gone.
func (t *transaction) admit(ctx context.Context, held []guard.Fence) error {
	if t.implicit {
		return errOpenRows
	}
	if t.lost != nil {
		return fmt.Errorf("sqlguard: nothing was sent, %w", t.lost)
	}
	var more []guard.Fence
	for _, f := range held {
		if !slices.Contains(t.held, f) {
			more = append(more, f)
		}
	}
	if len(more) == 0 {
		return nil
	}
	session := driverSession{t.conn.inner}
	if !t.fenced() { // so statements with which MySQL commits were let through
		switch open, err := t.conn.engine.open(within(ctx), session); {
		case err != nil:
			return fmt.Errorf("sqlguard: nothing was sent, because nobody knows whether the transaction is still there: %w", because(ctx, err))
		case !open:
			return errCommitted
		}
	}
	err := enter(ctx, t.conn.engine, &t.conn.settings, session, more, entering{readOnly: t.readOnly})
	if err != nil {
		t.lost = fmt.Errorf("%w: %w", errNotEntered, err)
	}
	return err
}

// Why a transaction was lost.
var (
	errLost       = errors.New("the database has rolled back this transaction")
	errNotEntered = errors.New("a fence could not be entered in this transaction, which has to be rolled back")
)

var errCommitted = errors.New("sqlguard: a statement such as CREATE TABLE or CALL has ended this transaction, in which no fence can be entered any more; " +
	"begin one with the fence in its context; nothing was sent")

var errOpenRows = errors.New("sqlguard: a transaction is open on this connection, or the rows of a fenced query; close them first")

// explain translates an error of a statement in the transaction, and finds out
// whether that is still there.
func (t *transaction) explain(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, driver.ErrSkip) {
		return err
	}
	if t.lost == nil && t.conn.engine.rolledBack(ctx, driverSession{t.conn.inner}, err) {
		t.lost = fmt.Errorf("%w: %w", errLost, err)
	}
	if isWithin(ctx) {
		return err // whoever fences knows what it holds, and says more
	}
	if t.readOnly && !t.fenced() && isReadOnly(err) {
		refused := &refusal{fmt.Errorf("sqlguard: %w in the context of a write, which ran in a read-only transaction: %w", guard.ErrNoFence, err), err}
		t.conn.observer.Refused(ctx, refused)
		return refused
	}
	return t.conn.translated(ctx, err, t.held)
}

// end ends the transaction of one statement, which has failed with err or not.
func (t *transaction) end(ctx context.Context, err error) error {
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("sqlguard: commit: not sent, %w: %w", errRolledBack, because(ctx, ctx.Err()))
	}
	if err == nil {
		return t.Commit()
	}
	if err = t.explain(ctx, err); !isRefusal(err) {
		err = because(ctx, err)
	}
	_ = t.Rollback()
	return err
}

func (t *transaction) Commit() error {
	if t.lost != nil {
		_ = t.Rollback()
		return fmt.Errorf("sqlguard: commit: not sent, %w: %w", errRolledBack, t.lost)
	}
	err := t.inner.Commit()
	if err != nil && t.conn.dialect == SQLite {
		_ = t.inner.Rollback() // a commit that finds the database busy can be repeated, and not every driver gives it up
	}
	t.close()
	err = t.conn.translated(t.ctx, err, t.held)
	fences := len(t.held) > 0 && !isWithin(t.ctx) // within: the guard tells
	if err == nil && fences {
		t.conn.observer.Committed(t.ctx, t.held)
	}
	if err == nil || isRefusal(err) || answered(err) && !noTransaction(err) {
		return err
	}
	t.conn.bad = true
	// Not the driver's error itself: for driver.ErrBadConn database/sql would run
	// the statement again, which may have been committed.
	err = fmt.Errorf("sqlguard: commit: %w: %v; read the data before you write it again", because(t.ctx, guard.ErrCommitUnknown), err)
	if fences {
		t.conn.observer.Refused(t.ctx, err)
	}
	return err
}

func (t *transaction) Rollback() error {
	err := t.inner.Rollback()
	if t.lost != nil && answered(err) {
		err = nil // there was nothing to roll back
	}
	t.close()
	if err != nil {
		t.conn.bad = true
	}
	return err
}

// close leaves the connection as it was before.
func (t *transaction) close() {
	t.conn.tx = nil
	if _, off := t.conn.engine.readOnly(); t.readOnly && off != "" {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
		defer cancel()
		if _, err := (driverSession{t.conn.inner}).exec(ctx, off); err != nil {
			t.conn.bad = true
		}
	}
}
