package gormguard

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/sqlguard"
)

// A pool stands in front of what GORM runs statements on outside of a
// transaction: a *sql.DB, a *sql.Conn, a cache of prepared statements. All paths of
// GORM meet here, whatever built the statement. A guarded write gets a transaction
// of its own that enters the fences first.
type pool struct {
	plugin *Plugin
	inner  gorm.ConnPool
	plan   *rowPlan // of the statement that GORM is about to run, in ModeRow
}

var (
	_ gorm.ConnPool         = (*pool)(nil)
	_ gorm.ConnPoolBeginner = (*pool)(nil)
	_ gorm.GetDBConnector   = (*pool)(nil)
)

// guarded decides on a statement: whether it needs the fences of ctx, or an error
// if it must not run.
func (p *Plugin) guarded(ctx context.Context, v rawsql.Verdict, steps []sqltext.Step, plan *rowPlan) (bool, error) {
	if v.Table == "" || isPassed(ctx) || p.unguarded(ctx, v.Table) {
		return false, nil
	}
	if len(guard.Fences(ctx)) == 0 {
		return false, p.refuse(ctx, guessed(v, noFence(v.Table)))
	}
	if slices.ContainsFunc(steps, func(s sqltext.Step) bool { return v.Several || s.Control != sqltext.Unknown }) {
		return false, p.refuse(ctx, raw(v.Table, "its text may also begin or end a transaction or a savepoint, as CALL may in MySQL"))
	}
	if p.mode.stamps() {
		if err := guessed(v, plan.complete(v)); err != nil {
			return false, p.refuse(ctx, err)
		}
	}
	return p.mode.fences(), nil
}

type passedKey struct{}

// passed marks a statement as judged. A cache of prepared statements stands
// between two guards: the outer one sees every statement, the inner one what is
// prepared, and the transactions that begin without the outer one.
func passed(ctx context.Context, conn gorm.ConnPool) context.Context {
	switch conn.(type) {
	case *gorm.PreparedStmtDB, *gorm.PreparedStmtTX:
		return context.WithValue(ctx, passedKey{}, true)
	}
	return ctx
}

func isPassed(ctx context.Context) bool { return ctx.Value(passedKey{}) != nil }

func (p *Plugin) refuse(ctx context.Context, err error) error {
	p.observer.Refused(ctx, err)
	return err
}

// judge says whether a statement needs the fences of ctx, and what it runs on if it
// does not.
func (c *pool) judge(ctx context.Context, query string) (on gorm.ConnPool, fence bool, err error) {
	v := c.plugin.classify(query)
	fence, err = c.plugin.guarded(ctx, v, sqltext.Steps(sqltext.Dialect(c.plugin.dialect), query), c.plan)
	if err == nil && fence && c.begunBySQL(ctx) {
		return nil, false, c.plugin.refuse(ctx, raw(v.Table, "a transaction was begun by SQL on this connection, which that of the write would end: use db.Transaction or db.Begin"))
	}
	if cache, ok := c.inner.(*gorm.PreparedStmtDB); ok && v.Table != "" && ctx.Value(unguardedKey{}) != nil {
		return cache.ConnPool, fence, err // from the cache anybody could run it
	}
	return c.inner, fence, err
}

// begunBySQL reports whether there is a transaction on the connection of
// db.Connection. Only in one can a savepoint be set, or be found again; SQLite, where
// that differs, refuses to begin a second transaction.
func (c *pool) begunBySQL(ctx context.Context) bool {
	conn, ok := c.inner.(*sql.Conn)
	if !ok || c.plugin.dialect == sqlguard.SQLite {
		return false
	}
	if _, err := conn.ExecContext(ctx, "SAVEPOINT "+probeName); err != nil {
		return false
	}
	_, err := conn.ExecContext(ctx, "RELEASE SAVEPOINT "+probeName)
	return err == nil
}

func (c *pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	on, fence, err := c.judge(ctx, query)
	if err != nil {
		return nil, err
	}
	if !fence {
		result, err := on.ExecContext(passed(ctx, c.inner), query, args...)
		return result, because(ctx, err)
	}
	var result sql.Result
	err = c.inTx(ctx, func(t *transaction) (err error) {
		result, err = t.ExecContext(ctx, query, args...)
		return err
	})
	return result, err
}

// QueryContext commits a guarded write before its rows are handed out: they are
// read to the end first.
func (c *pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	on, fence, err := c.judge(ctx, query)
	if err != nil {
		return nil, err
	}
	if !fence {
		rows, err := on.QueryContext(passed(ctx, c.inner), query, args...)
		return rows, because(ctx, err)
	}
	kept, err := c.queryInTx(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return kept.rows(ctx)
}

// QueryRowContext never returns nil: GORM's Row hands it to the caller, who calls
// Scan on it. An error is that of the row.
func (c *pool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	on, fence, err := c.judge(ctx, query)
	switch {
	case err != nil:
		return failedRow(ctx, err)
	case !fence:
		return becauseRow(ctx, on.QueryRowContext(passed(ctx, c.inner), query, args...))
	}
	kept, err := c.queryInTx(ctx, query, args)
	if err != nil {
		return failedRow(ctx, err)
	}
	return kept.row(ctx)
}

// PrepareContext is called by GORM's cache of prepared statements. What it
// prepares outside of a transaction cannot be watched.
func (c *pool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	_, fence, err := c.judge(ctx, query)
	if err != nil {
		return nil, err
	}
	if fence {
		return nil, raw(c.plugin.classify(query).Table, "it is prepared outside of a transaction")
	}
	stmt, err := c.inner.PrepareContext(ctx, query)
	return stmt, because(ctx, err)
}

// BeginTx implements [gorm.ConnPoolBeginner].
func (c *pool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	t, err := c.begin(ctx, opts)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (c *pool) begin(ctx context.Context, opts *sql.TxOptions) (*transaction, error) {
	switch inner := c.inner.(type) {
	case gorm.TxBeginner:
		begun, err := inner.BeginTx(ctx, opts)
		if err != nil {
			return nil, because(ctx, err)
		}
		return c.plugin.newTx(begun, &txState{ctx: ctx}), nil
	case gorm.ConnPoolBeginner:
		begun, err := inner.BeginTx(ctx, opts)
		if err != nil {
			return nil, because(ctx, err)
		}
		if t, ok := c.plugin.viewOf(begun, &txState{ctx: ctx}); ok {
			return t, nil
		}
	}
	return nil, gorm.ErrInvalidTransaction
}

// inTx runs fn in a transaction of its own.
func (c *pool) inTx(ctx context.Context, fn func(t *transaction) error) error {
	t, err := c.begin(ctx, nil)
	if err != nil {
		return fmt.Errorf("gormguard: begin: %w", err)
	}
	done := false
	defer func() {
		if !done {
			_ = t.Rollback() // the error of fn, or a panic, says more
		}
	}()
	t.plan = c.plan
	if err := fn(t); err != nil {
		return err
	}
	done = true
	return t.Commit()
}

func (c *pool) queryInTx(ctx context.Context, query string, args []any) (kept *keptRows, err error) {
	err = c.inTx(ctx, func(t *transaction) error {
		rows, err := t.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		kept, err = keep(rows)
		return err
	})
	return kept, err
}

// GetDBConn implements [gorm.GetDBConnector], by which db.DB works.
func (c *pool) GetDBConn() (*sql.DB, error) { return sqlDB(c.inner) }

func sqlDB(inner gorm.ConnPool) (*sql.DB, error) {
	switch p := inner.(type) {
	case *sql.DB:
		return p, nil
	case gorm.GetDBConnector:
		return p.GetDBConn()
	}
	return nil, gorm.ErrInvalidDB
}

// Ping is called by gorm.Open.
func (c *pool) Ping() error {
	if p, ok := c.inner.(interface{ Ping() error }); ok {
		return p.Ping()
	}
	return nil
}
