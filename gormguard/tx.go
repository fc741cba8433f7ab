package gormguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/guard"
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
}

var (
	_ gorm.Tx             = (*transaction)(nil)
	_ gorm.GetDBConnector = (*transaction)(nil)
)

// A txState is what is known of one transaction, through however many views.
type txState struct {
	mu         sync.Mutex
	foreign    bool            // others may run statements in it unseen: nothing is remembered
	entered    []guard.Fence   // since the last ROLLBACK TO
	ctx        context.Context // that the last fence was entered with, for the observer
	savepoints []string
	refused    error // why it must not be committed
	refusedAt  int   // savepoints set by then
	ended      bool
}

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
		return c, true
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

// admit lets a statement pass, or enters what it needs first.
func (t *transaction) admit(ctx context.Context, query string) (verdict, error) {
	v := classify(query, t.plugin.dialect, t.plugin.tables)
	fence, err := t.plugin.guarded(ctx, v, t.plan)
	if err != nil || !fence {
		return v, err
	}
	return v, t.enter(ctx)
}

// enter enters the fences of ctx that were not entered yet. What was entered
// inside a savepoint is lost when that is rolled back (S34), so every ROLLBACK TO
// makes it forget all: to enter again what still holds costs one round trip and
// changes nothing.
func (t *transaction) enter(ctx context.Context) error {
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded
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
	if err := t.plugin.enter(ctx, t.raw, held); err != nil {
		if errors.Is(err, guard.ErrStale) || errors.Is(err, guard.ErrNotRaised) {
			s.refused, s.refusedAt = err, len(s.savepoints)
		}
		return err
	}
	s.entered, s.ctx = append(s.entered, held...), ctx
	return nil
}

// enter enters as the options of the guard say.
func (p *Plugin) enter(ctx context.Context, conn gorm.ConnPool, held []guard.Fence) error {
	if g := p.guard.Load(); g != nil {
		return g.Enter(ctx, conn, held...)
	}
	return sqlguard.Enter(ctx, p.dialect, conn, held...)
}

// ran notes what a statement has done to the transaction.
func (s *txState) ran(v verdict) {
	if v.control == controlNone {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.savepoints, func(name string) bool { return strings.EqualFold(name, v.savepoint) })
	switch v.control {
	case controlSavepoint:
		s.savepoints = append(s.savepoints, v.savepoint)
	case controlRelease:
		if i >= 0 {
			s.savepoints = s.savepoints[:i]
			s.refusedAt = min(s.refusedAt, i)
		}
	case controlRollbackTo:
		s.entered = nil
		if i >= 0 && i < s.refusedAt {
			s.refused = nil // what was refused has been undone, and the caller knows
		}
	case controlEnd:
		s.entered, s.ended = nil, true
	}
}

// conn returns what a statement runs on: MySQL cannot prepare those that control
// a transaction.
func (t *transaction) conn(v verdict) gorm.ConnPool {
	if v.control != controlNone {
		return t.raw
	}
	return t.inner
}

func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	v, err := t.admit(ctx, query)
	if err != nil {
		return nil, err
	}
	conn := t.conn(v)
	result, err := conn.ExecContext(passed(ctx, conn), query, args...)
	if err == nil || v.control == controlRollbackTo || v.control == controlEnd {
		t.state.ran(v)
	}
	return result, err
}

func (t *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	v, err := t.admit(ctx, query)
	if err != nil {
		return nil, err
	}
	t.state.ran(v)
	conn := t.conn(v)
	return conn.QueryContext(passed(ctx, conn), query, args...)
}

func (t *transaction) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	v, err := t.admit(ctx, query)
	if err != nil {
		return failedRow(ctx, err)
	}
	t.state.ran(v)
	conn := t.conn(v)
	return conn.QueryRowContext(passed(ctx, conn), query, args...)
}

// PrepareContext enters too: whoever prepares a write in a transaction runs it
// there.
func (t *transaction) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if _, err := t.admit(ctx, query); err != nil {
		return nil, err
	}
	return t.inner.PrepareContext(ctx, query)
}

// StmtContext implements [gorm.Tx] for the cache of prepared statements, in front
// of which there is another view that has judged the statement.
func (t *transaction) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	return t.inner.StmtContext(ctx, stmt)
}

// Commit refuses to commit if a fence was refused since: a caller that lost the
// error would commit the other half of its work.
func (t *transaction) Commit() error {
	t.state.mu.Lock()
	refused, entered, ctx := t.state.refused, t.state.entered, t.state.ctx
	t.state.mu.Unlock()
	if refused != nil {
		_ = t.inner.Rollback()
		return fmt.Errorf("gormguard: commit: rolled back, because a write in this transaction was refused: %w", refused)
	}
	g := t.plugin.guard.Load()
	if len(entered) == 0 || g == nil {
		return t.inner.Commit()
	}
	c := &committer{inner: t.inner}
	if err := g.Commit(ctx, c, entered...); errors.Is(err, guard.ErrCommitUnknown) {
		return err
	}
	return c.err
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
