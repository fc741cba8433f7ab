package sqlguard

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// rows are those of a query. With a transaction of their own they commit it when
// they are closed, as database/sql does at their end; it makes the error of that
// one of Rows.Err.
type rows struct {
	driver.Rows                 // those of the driver itself, for what they can do
	closer      io.Closer       // closes them, and what they come from
	ctx         context.Context // what Close has to know: a dead one must not commit
	conn        *conn
	tx          *transaction
	closed      bool
	err         error // of Close
}

func newRows(ctx context.Context, inner driver.Rows, c *conn, tx *transaction) *rows {
	r := &rows{Rows: inner, closer: inner, ctx: ctx, conn: c, tx: tx}
	if s, ok := inner.(*stmtRows); ok {
		r.Rows = s.Rows
	}
	return r
}

func (r *rows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return r.fail(err)
}

// Close ends what the rows have open. A second call returns what the first did.
func (r *rows) Close() error {
	if r.closed {
		return r.err
	}
	r.closed = true
	r.err = r.closer.Close()
	if r.tx != nil {
		r.err = r.tx.end(r.ctx, r.err)
	} else if r.err != nil {
		r.err = r.conn.explain(r.ctx, r.err)
	}
	return r.err
}

// fail ends the rows because of err, and their transaction without a commit.
func (r *rows) fail(err error) error {
	if r.tx == nil {
		return r.conn.explain(r.ctx, err)
	}
	if r.closed {
		return err
	}
	r.closed = true
	_ = r.closer.Close() // err came first
	r.err = r.tx.end(r.ctx, err)
	return r.err
}

func (r *rows) HasNextResultSet() bool {
	next, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && next.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	next, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	err := next.NextResultSet()
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return r.fail(err)
}

// The methods below answer as database/sql does where a driver leaves them out.

func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if c, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return c.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *rows) ColumnTypeLength(i int) (int64, bool) {
	if c, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return c.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *rows) ColumnTypeNullable(i int) (nullable, known bool) {
	if c, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return c.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if c, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return c.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}

func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if c, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return c.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}
