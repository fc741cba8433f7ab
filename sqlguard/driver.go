package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The functions of this file call a driver as database/sql does: the newer
// interface where there is one, and another way where the driver says
// driver.ErrSkip.

// What only old drivers have is deprecated, and named here without that.
type (
	beginner interface{ Begin() (driver.Tx, error) }
	execer   interface {
		Exec([]driver.Value) (driver.Result, error)
	}
	queryer interface {
		Query([]driver.Value) (driver.Rows, error)
	}
	columnConverter interface {
		ColumnConverter(i int) driver.ValueConverter
	}
)

var errOldDriver = errors.New("the driver has no isolation levels and no read-only transactions")

func beginOn(ctx context.Context, c driver.Conn, o driver.TxOptions) (driver.Tx, error) {
	if b, ok := c.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, o)
	}
	if o.Isolation != driver.IsolationLevel(sql.LevelDefault) || o.ReadOnly {
		return nil, errOldDriver
	}
	return beginner(c).Begin()
}

func prepare(ctx context.Context, c driver.Conn, query string) (driver.Stmt, error) {
	if p, ok := c.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	s, err := c.Prepare(query)
	if err == nil && ctx.Err() != nil {
		_ = s.Close()
		return nil, ctx.Err()
	}
	return s, err
}

func execOn(ctx context.Context, c driver.Conn, query string, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := c.(driver.ExecerContext); ok {
		result, err := e.ExecContext(ctx, query, args)
		if !errors.Is(err, driver.ErrSkip) {
			return result, err
		}
	}
	s, args, err := prepareFor(ctx, c, query, args)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	return execStmt(ctx, s, args)
}

func queryOn(ctx context.Context, c driver.Conn, query string, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := c.(driver.QueryerContext); ok {
		rows, err := q.QueryContext(ctx, query, args)
		if !errors.Is(err, driver.ErrSkip) {
			return rows, err
		}
	}
	s, args, err := prepareFor(ctx, c, query, args)
	if err != nil {
		return nil, err
	}
	inner, err := queryStmt(ctx, s, args)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return &stmtRows{inner, s}, nil
}

// prepareFor prepares a statement for arguments that were checked for the
// connection, and lets the statement check them too.
func prepareFor(ctx context.Context, c driver.Conn, query string, args []driver.NamedValue) (driver.Stmt, []driver.NamedValue, error) {
	s, err := prepare(ctx, c, query)
	if err != nil {
		return nil, nil, err
	}
	args, err = checkedFor(s, args)
	if err != nil {
		_ = s.Close()
		return nil, nil, err
	}
	return s, args, nil
}

func checkedFor(s driver.Stmt, args []driver.NamedValue) ([]driver.NamedValue, error) {
	if n := s.NumInput(); n >= 0 && n != len(args) {
		return nil, fmt.Errorf("sqlguard: expected %d arguments, got %d", n, len(args))
	}
	checker, _ := s.(driver.NamedValueChecker)
	converter, _ := s.(columnConverter)
	checked := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		err := driver.ErrSkip
		if checker != nil {
			err = checker.CheckNamedValue(&arg)
		}
		if errors.Is(err, driver.ErrSkip) && converter != nil {
			arg.Value, err = converter.ColumnConverter(i).ConvertValue(arg.Value)
		}
		if err != nil && !errors.Is(err, driver.ErrSkip) {
			return nil, fmt.Errorf("sqlguard: converting argument %d: %w", i+1, err)
		}
		checked[i] = arg
	}
	return checked, nil
}

func execStmt(ctx context.Context, s driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := s.(driver.StmtExecContext); ok {
		return e.ExecContext(ctx, args)
	}
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return execer(s).Exec(values)
}

func queryStmt(ctx context.Context, s driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := s.(driver.StmtQueryContext); ok {
		return q.QueryContext(ctx, args)
	}
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return queryer(s).Query(values)
}

func named(values []driver.Value) []driver.NamedValue {
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return args
}

func unnamed(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		if arg.Name != "" {
			return nil, errors.New("sqlguard: the driver does not support named arguments")
		}
		values[i] = arg.Value
	}
	return values, ctx.Err()
}

// stmtRows close the statement that they come from. What else the driver's rows can do
// is for those who take them out.
type stmtRows struct {
	driver.Rows
	stmt driver.Stmt
}

func (r *stmtRows) Close() error { return errors.Join(r.Rows.Close(), r.stmt.Close()) }

// driverSession is a session of a driver's connection.
type driverSession struct{ conn driver.Conn }

func (s driverSession) exec(ctx context.Context, query string, args ...any) (driver.Result, error) {
	return execOn(ctx, s.conn, query, namedAny(args))
}

func (s driverSession) row(ctx context.Context, query string, args []any, dest ...any) (found bool, err error) {
	rows, err := queryOn(ctx, s.conn, query, namedAny(args))
	if err != nil {
		return false, err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	values := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(values); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	if len(values) != len(dest) {
		return false, fmt.Errorf("sqlguard: %d columns where %d were expected", len(values), len(dest))
	}
	for i, v := range values {
		if err := assign(dest[i], v); err != nil {
			return false, err
		}
	}
	return true, nil
}

func namedAny(args []any) []driver.NamedValue {
	values := make([]driver.NamedValue, len(args))
	for i, v := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return values
}

// assign stores what a driver returned for a number or a text.
func assign(dest any, v driver.Value) (err error) {
	if b, ok := v.([]byte); ok {
		v = string(b)
	}
	switch dest := dest.(type) {
	case *string:
		if s, ok := v.(string); ok {
			*dest = s
			return nil
		}
	case *int64:
		switch v := v.(type) {
		case int64:
			*dest = v
			return nil
		case uint64: // of a variable
			*dest = int64(v)
			return nil
		case string:
			*dest, err = strconv.ParseInt(v, 10, 64)
			return err
		}
	}
	return fmt.Errorf("sqlguard: the driver returned a %T for a %T", v, dest)
}
