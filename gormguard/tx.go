package gormguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/sqlguard"
)

// A transaction stands in front of one of GORM's own. Before the first guarded write it enters
// the fences of the statement's context.
type transaction struct {
	plugin *Plugin
	inner  gorm.Tx
	raw    gorm.ConnPool // without the cache of prepared statements
	state  *txState
	plan   *rowPlan // of the statement that GORM is about to run, in ModeRow
	rows   bool     // GORM is about to hand out rows, and will not see their error
}

var (
	_ gorm.Tx             = (*transaction)(nil)
	_ gorm.GetDBConnector = (*transaction)(nil)
)

func (p *Plugin) newTx(inner gorm.Tx, state *txState) *transaction {
	t := &transaction{plugin: p, inner: inner, raw: inner, state: state}
	if prepared, ok := inner.(*gorm.PreparedStmtTX); ok {
		t.raw = prepared.Tx
		if below, ok := prepared.Tx.(*transaction); ok {
			t.raw, t.state = below.raw, below.state
		}
	}
	return t
}

// viewOf returns the guarded form of a transaction that GORM or another plugin has
// begun.
func (p *Plugin) viewOf(conn gorm.ConnPool, state *txState) (*transaction, bool) {
	switch c := conn.(type) {
	case *transaction:
		if c.plugin == p {
			return c, true
		}
		return p.newTx(c, state), true
	case gorm.Tx:
		return p.newTx(c, state), true
	case gorm.TxCommitter:
		return p.newTx(bareTx{conn, c}, state), true
	}
	return nil, false
}

// A bareTx is a transaction of somebody else's making that cannot run prepared
// statements of the pool.
type bareTx struct {
	gorm.ConnPool
	gorm.TxCommitter
}

func (bareTx) StmtContext(_ context.Context, stmt *sql.Stmt) *sql.Stmt { return stmt }

// admit lets a statement pass, or enters what it needs first. It returns what the
// statement does to the transaction.
func (t *transaction) admit(ctx context.Context, query string) ([]sqltext.Step, error) {
	if isPassed(ctx) {
		t.use()
		return nil, nil
	}
	if err := t.settle(ctx); err != nil {
		return nil, err
	}
	defer t.use()
	steps := sqltext.Steps(sqltext.Dialect(t.plugin.dialect), query)
	v := t.plugin.classify(query)
	fence, err := t.plugin.guarded(ctx, v, steps, t.plan)
	if err == nil && fence {
		err = t.enter(ctx)
	}
	if err != nil {
		t.failed(ctx, err)
		return nil, err
	}
	ask := slices.ContainsFunc(steps, mayEnd)
	if ask && slices.ContainsFunc(steps, func(s sqltext.Step) bool { return !mayEnd(s) }) {
		// To release the savepoint of probe would release those of this text.
		return append(steps, sqltext.Step{Control: sqltext.End}), nil
	}
	if ask {
		err = t.probe(ctx, steps)
	}
	return steps, err
}

// use notes that a statement runs.
func (t *transaction) use() {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	t.state.used = true
	t.state.unseen = t.state.unseen || t.rows && t.plugin.dialect != sqlguard.Postgres // which refuses the rest by itself
}

// enter enters the fences of ctx that were not entered yet. What was entered
// inside a savepoint is lost when that is rolled back (S34), so every ROLLBACK TO
// makes it forget all: to enter again what still holds costs one round trip and
// changes nothing.
func (t *transaction) enter(ctx context.Context) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := t.lookLocked(ctx); err != nil {
		return err
	}
	if err := s.over(); err != nil {
		return err
	}
	held := guard.Fences(ctx)
	if !s.foreign {
		for i, f := range held {
			if !slices.Contains(s.entered, f) {
				break
			}
			if i == len(held)-1 {
				return nil
			}
		}
	}
	conn := t.raw
	if t.plugin.dialect == sqlguard.MySQL && !s.used && !s.foreign {
		conn = freshTx{conn}
	}
	if err := t.plugin.enter(ctx, conn, held); err != nil {
		t.failedLocked(ctx, err, true)
		return because(ctx, err)
	}
	s.entered, s.ctx, s.used = append(s.entered, held...), ctx, true
	return nil
}

// A freshTx tells sqlguard that nothing has run in the transaction, which then has no
// snapshot from before the raise.
type freshTx struct{ gorm.ConnPool }

func (freshTx) Fresh() bool { return true }

// enter enters as the options of the guard say.
func (p *Plugin) enter(ctx context.Context, conn gorm.ConnPool, held []guard.Fence) error {
	if g := p.guard.Load(); g != nil {
		return g.Enter(ctx, conn, held...)
	}
	return sqlguard.Enter(ctx, p.dialect, conn, held...)
}

// conn returns what a statement runs on: MySQL cannot prepare those that control
// a transaction.
func (t *transaction) conn(steps []sqltext.Step) gorm.ConnPool {
	if len(steps) > 0 {
		return t.raw
	}
	return t.inner
}

func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	steps, err := t.admit(ctx, query)
	if err != nil {
		return nil, err
	}
	conn := t.conn(steps)
	result, err := conn.ExecContext(passed(ctx, conn), query, args...)
	t.ran(ctx, steps, err)
	return result, because(ctx, err)
}

func (t *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	steps, err := t.admit(ctx, query)
	if err != nil {
		return nil, err
	}
	conn := t.conn(steps)
	rows, err := conn.QueryContext(passed(ctx, conn), query, args...)
	t.ran(ctx, steps, err)
	return rows, because(ctx, err)
}

func (t *transaction) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	steps, err := t.admit(ctx, query)
	if err != nil {
		return failedRow(ctx, err)
	}
	conn := t.conn(steps)
	row := conn.QueryRowContext(passed(ctx, conn), query, args...)
	t.ran(ctx, steps, row.Err())
	return becauseRow(ctx, row)
}

// PrepareContext enters too: whoever prepares a write in a transaction runs it
// there. When the statement is run nobody sees, so it must not be one that ends the
// transaction.
func (t *transaction) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	steps, err := t.admit(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(steps) > 0 {
		return nil, fmt.Errorf("gormguard: prepare: %.40q may end a transaction or a savepoint; run it without preparing it", query)
	}
	stmt, err := t.inner.PrepareContext(ctx, query)
	if err == nil && t.plugin.classify(query).Table != "" {
		t.plugin.prepared.add(stmt, query)
	}
	return stmt, because(ctx, err)
}

// StmtContext implements [gorm.Tx] for the cache of prepared statements. In front of
// that there is another view that has judged the statement, unless somebody calls the
// cache itself: it may have the statement from a transaction that was admitted.
func (t *transaction) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	if query, ok := t.plugin.prepared.text(stmt); ok && !isPassed(ctx) {
		if _, err := t.admit(ctx, query); err != nil {
			return failedStmt(ctx, err)
		}
	}
	return t.inner.StmtContext(ctx, stmt)
}

// Commit refuses to commit if a write was refused since, or if the database has
// rolled back: a caller that lost the error would commit the other half of its work.
func (t *transaction) Commit() error {
	t.lookBack()
	t.state.mu.Lock()
	refused, lost, unsure, entered, ctx := t.state.refused, t.state.lost, t.state.unsure, t.state.entered, t.state.ctx
	t.state.mu.Unlock()
	if lost != nil {
		_ = t.inner.Rollback()
		return fmt.Errorf("gormguard: commit: not sent, the database has rolled back this transaction by itself: %w", lost)
	}
	if refused != nil {
		_ = t.inner.Rollback()
		return fmt.Errorf("gormguard: commit: rolled back, because a write in this transaction was refused: %w", refused)
	}
	if unsure {
		_ = t.inner.Rollback()
		return t.plugin.refuse(ctx, fmt.Errorf("gormguard: commit: %w: a statement such as CALL has ended this transaction before; read the data before you write it again", guard.ErrCommitUnknown))
	}
	g := t.plugin.guard.Load()
	if len(entered) == 0 || g == nil {
		return because(ctx, t.inner.Commit())
	}
	c := &committer{inner: t.inner}
	if err := g.Commit(ctx, c, entered...); errors.Is(err, guard.ErrCommitUnknown) && !sleptIn(err) {
		return err
	}
	return because(ctx, c.err)
}

// lookBack finds out what has become of the transaction, where its own commit would not
// tell: MySQL commits what is not there. What commits by itself has done so.
func (t *transaction) lookBack() {
	ctx := context.Background()
	t.state.mu.Lock()
	asked := t.state.probing == sqltext.Unknown
	_ = t.lookLocked(ctx)
	t.state.mu.Unlock()
	if asked {
		_ = t.settle(ctx) // where it cannot tell, the commit will
	}
}

// A committer keeps the driver's own error, which GORM and its TranslateError know.
type committer struct {
	inner gorm.Tx
	err   error
}

func (c *committer) Commit() error {
	c.err = c.inner.Commit()
	return c.err
}

// Rollback rolls back.
func (t *transaction) Rollback() error { return t.inner.Rollback() }

// GetDBConn implements [gorm.GetDBConnector], by which db.DB works.
func (t *transaction) GetDBConn() (*sql.DB, error) {
	return (&gorm.DB{Config: &gorm.Config{ConnPool: t.inner}}).DB()
}
