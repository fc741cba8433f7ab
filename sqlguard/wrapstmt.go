package sqlguard

import (
	"context"
	"database/sql/driver"
)

// A stmt is a prepared statement of a conn.
type stmt struct {
	driver.Stmt
	conn  *conn
	query string
}

var (
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(ctx, s.query, func() (driver.Result, error) { return execStmt(ctx, s.Stmt, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, s.query, func() (driver.Rows, error) { return queryStmt(ctx, s.Stmt, args) })
}

// Exec and Query are not called by database/sql.
func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), named(args))
}

func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), named(args))
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if err := checkArgument(v.Value); err != nil {
		return err
	}
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

// A convertingStmt is one whose driver has the older way of converting arguments:
// database/sql takes that as soon as the method is there.
type convertingStmt struct {
	*stmt
	columnConverter
}
