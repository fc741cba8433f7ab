package sqlguard

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

// A conn is a driver's connection that fences. Like any it is used by one goroutine
// at a time. What its driver leaves out it does as database/sql would.
type conn struct {
	*connector
	inner driver.Conn
	tx    *transaction // the open one
	bad   bool         // nobody knows in which state it is
}

var (
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
)

// WrappedBySQLGuard is how package migrations knows it, through sql.Conn.Raw.
func (c *conn) WrappedBySQLGuard() {}

func (c *conn) Close() error { return c.inner.Close() }

func (c *conn) Ping(ctx context.Context) error {
	if p, ok := c.inner.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if c.bad || c.tx != nil {
		return driver.ErrBadConn
	}
	if r, ok := c.inner.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	if c.bad {
		return false
	}
	v, ok := c.inner.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if err := checkArgument(v.Value); err != nil {
		return err
	}
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// checkArgument refuses a pgx.QueryRewriter, which makes another statement of the one
// that was looked at. Those of pgx itself, such as pgx.NamedArgs, only number arguments.
func checkArgument(v any) error {
	if driver.IsValue(v) || strings.HasPrefix(sqlerror.PackageOf(v), "github.com/jackc/pgx/") {
		return nil
	}
	if _, rewrites := reflect.TypeOf(v).MethodByName("RewriteQuery"); rewrites {
		return fmt.Errorf("sqlguard: an argument of type %T rewrites the statement after it was looked at; rewrite it before; nothing was sent", v)
	}
	return nil
}

// Begin is not called by database/sql, which prefers BeginTx.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if entered, ok := ctx.Value(withinKey{}).([]guard.Fence); ok {
		return c.begin(ctx, o, nil, entered)
	}
	held := guard.Fences(ctx)
	if err := valid(held); err != nil {
		return nil, err
	}
	if len(held) == 0 && !c.passThrough && !o.ReadOnly {
		return nil, c.noFence(ctx, "begin", ", and the transaction is not read-only")
	}
	return c.begin(ctx, o, held, nil)
}

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	// SQLite runs some PRAGMAs here, and a fence of ctx is entered only later.
	if c.dialect == SQLite && !isWithin(ctx) && !c.tx.fenced() && (c.tx != nil || len(guard.Fences(ctx)) == 0) {
		if err := c.checkReadOnly(ctx, query); err != nil {
			return nil, err
		}
	}
	inner, err := prepare(ctx, c.inner, query)
	if err != nil {
		return nil, Translate(err)
	}
	s := &stmt{Stmt: inner, conn: c, query: query}
	if converter, ok := inner.(columnConverter); ok {
		return convertingStmt{s, converter}, nil
	}
	return s, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, query, func() (driver.Result, error) { return execOn(ctx, c.inner, query, args) })
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, query, func() (driver.Rows, error) { return queryOn(ctx, c.inner, query, args) })
}

// exec runs a statement by do through the door that is right for it.
func (c *conn) exec(ctx context.Context, query string, do func() (driver.Result, error)) (driver.Result, error) {
	way, held, err := c.door(ctx, query, false)
	if err != nil {
		return nil, err
	}
	if way == asItIs {
		result, err := do()
		return result, c.explain(ctx, err)
	}
	t, err := c.begin(ctx, driver.TxOptions{}, held, nil)
	if err != nil {
		return nil, err
	}
	t.implicit = true
	result, err := do()
	if err = t.end(ctx, err); err != nil {
		return nil, err
	}
	return result, nil
}

// query is exec for what returns rows. With them the transaction stays open.
func (c *conn) query(ctx context.Context, query string, do func() (driver.Rows, error)) (driver.Rows, error) {
	way, held, err := c.door(ctx, query, true)
	if err != nil {
		return nil, err
	}
	if way == asItIs {
		inner, err := do()
		if err != nil {
			return nil, c.explain(ctx, err)
		}
		return newRows(ctx, inner, c, nil), nil
	}
	t, err := c.begin(ctx, driver.TxOptions{ReadOnly: way == readOnly}, held, nil)
	if errors.Is(err, errOldDriver) && way == readOnly {
		err = fmt.Errorf("sqlguard: query: %w in the context of what may be a write: %w", guard.ErrNoFence, err)
		c.observer.Refused(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	t.implicit = true
	inner, err := do()
	if err != nil {
		return nil, t.end(ctx, err)
	}
	return newRows(ctx, inner, c, t), nil
}

// explain translates an error of a statement that ran as it is.
func (c *conn) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case c.tx != nil:
		return c.tx.explain(ctx, err)
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, driver.ErrSkip):
		return err
	}
	return c.translated(ctx, err, nil)
}

// noFence returns the error of what needs a fence and has none, and tells the
// observer.
func (c *conn) noFence(ctx context.Context, what, more string) error {
	err := fmt.Errorf("sqlguard: %s: %w in the context%s; acquire a lease and use its context, or see WithPassThrough; nothing was sent", what, guard.ErrNoFence, more)
	c.observer.Refused(ctx, err)
	return err
}
