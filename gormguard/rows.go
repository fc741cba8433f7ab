package gormguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// A keptRows is the result of a query, read to its end, so that the transaction
// can be committed before the caller sees a row. It is a driver of database/sql
// that knows one answer, because *sql.Rows and *sql.Row cannot be made otherwise.
type keptRows struct {
	columns []string
	types   []*sql.ColumnType
	values  [][]driver.Value
	err     error
}

// keep reads and closes rows.
func keep(rows *sql.Rows) (k *keptRows, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	k = &keptRows{}
	if k.columns, err = rows.Columns(); err != nil {
		return nil, err
	}
	if k.types, err = rows.ColumnTypes(); err != nil {
		return nil, err
	}
	for rows.Next() {
		row := make([]driver.Value, len(k.columns))
		dest := make([]any, len(row))
		for i := range row {
			dest[i] = (*any)(&row[i])
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		k.values = append(k.values, row)
	}
	return k, rows.Err()
}

func failedRow(ctx context.Context, err error) *sql.Row { return (&keptRows{err: err}).row(ctx) }

// failedStmt returns a statement that fails with err, and never nil.
func failedStmt(ctx context.Context, err error) *sql.Stmt {
	ctx = context.WithoutCancel(ctx)
	db := sql.OpenDB(&keptRows{err: err})
	defer func() { _ = db.Close() }()
	conn, _ := db.Conn(ctx) // neither can fail
	stmt, _ := conn.PrepareContext(ctx, "")
	return stmt
}

// becauseRow is because for the error of a row. That of GORM's cache, where it cannot
// prepare, is empty, and its Scan panics.
func becauseRow(ctx context.Context, row *sql.Row) *sql.Row {
	err := row.Err()
	if *row == (sql.Row{}) {
		err = ctx.Err()
	}
	if err == nil {
		return row
	}
	return failedRow(ctx, because(ctx, err))
}

// rows hands out what was kept. The database is closed at once: it goes on living
// for as long as its one connection is in use, and leaves no goroutine behind.
func (k *keptRows) rows(ctx context.Context) (*sql.Rows, error) {
	db := sql.OpenDB(k)
	defer func() { _ = db.Close() }()
	return db.QueryContext(context.WithoutCancel(ctx), "")
}

func (k *keptRows) row(ctx context.Context) *sql.Row {
	db := sql.OpenDB(k)
	defer func() { _ = db.Close() }()
	return db.QueryRowContext(context.WithoutCancel(ctx), "")
}

func (k *keptRows) Connect(context.Context) (driver.Conn, error) { return keptConn{k}, nil }
func (k *keptRows) Driver() driver.Driver                        { return keptDriver{} }

type keptDriver struct{}

func (keptDriver) Open(string) (driver.Conn, error) { return nil, errors.ErrUnsupported }

type keptConn struct{ *keptRows }

func (c keptConn) Prepare(string) (driver.Stmt, error) { return keptStmt(c), nil }
func (keptConn) Close() error                          { return nil }
func (keptConn) Begin() (driver.Tx, error)             { return nil, errors.ErrUnsupported }

type keptStmt struct{ *keptRows } // that of failedStmt

func (keptStmt) Close() error                                 { return nil }
func (keptStmt) NumInput() int                                { return -1 }
func (s keptStmt) Exec([]driver.Value) (driver.Result, error) { return nil, s.err }
func (s keptStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, s.err }

func (c keptConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	if c.err != nil {
		return nil, c.err
	}
	return &keptCursor{keptRows: c.keptRows}, nil
}

type keptCursor struct {
	*keptRows
	next int
}

func (c *keptCursor) Columns() []string { return c.columns }
func (c *keptCursor) Close() error      { return nil }

func (c *keptCursor) Next(dest []driver.Value) error {
	if c.next >= len(c.values) {
		return io.EOF
	}
	copy(dest, c.values[c.next])
	c.next++
	return nil
}

func (c *keptCursor) ColumnTypeDatabaseTypeName(i int) string { return c.types[i].DatabaseTypeName() }
func (c *keptCursor) ColumnTypeLength(i int) (int64, bool)    { return c.types[i].Length() }
func (c *keptCursor) ColumnTypeNullable(i int) (bool, bool)   { return c.types[i].Nullable() }

func (c *keptCursor) ColumnTypePrecisionScale(i int) (int64, int64, bool) {
	return c.types[i].DecimalSize()
}

func (c *keptCursor) ColumnTypeScanType(i int) reflect.Type {
	if t := c.types[i].ScanType(); t != nil {
		return t
	}
	return reflect.TypeFor[any]()
}
