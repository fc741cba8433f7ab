package pgguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/go-fencing/fencing/guard"
)

// A translator turns errors of the server into those of package guard.
type translator struct {
	guard *Guard
	ctx   context.Context // that the transaction was begun with, for the observer
	held  []guard.Fence
}

func (t translator) translate(err error) error {
	if why, slept := t.guard.sleptIn(err); slept && !errors.Is(err, errRolledBack) {
		return fmt.Errorf("pgguard: %w: %w", errRolledBack, why)
	}
	return t.guard.refused(t.ctx, err, t.held)
}

// txRows are the rows of a query in a fenced transaction. Their error is
// translated once, so that the observer is told once although Err may be asked
// often.
type txRows struct {
	pgx.Rows
	translate func(error) error
	err       error
}

func wrapRows(rows pgx.Rows, err error, translate func(error) error) (pgx.Rows, error) {
	r := &txRows{Rows: rows, translate: translate}
	if err != nil {
		return r, r.Err()
	}
	return r, nil
}

func (r *txRows) Err() error {
	if r.err == nil {
		r.err = r.translate(r.Rows.Err())
	}
	return r.err
}

// txRow is the row of a query in a fenced transaction.
type txRow struct {
	pgx.Row
	translate func(error) error
}

func (r txRow) Scan(dest ...any) error { return r.translate(r.Row.Scan(dest...)) }

// lastRows returns the rows of the last query of a batch. Closing them ends the
// batch: end is called with their error, and what it returns is theirs from then on.
func lastRows(results pgx.BatchResults, end func(error) error) (pgx.Rows, error) {
	rows, err := results.Query()
	if err != nil {
		err = end(err)
		return noRows{err}, err
	}
	return &batchRows{Rows: rows, end: end}, nil
}

// endBatch closes results, and returns err or else the error of that.
func endBatch(results pgx.BatchResults, err error) error {
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return err
}

type batchRows struct {
	pgx.Rows
	end    func(error) error
	closed bool
	err    error
}

func (r *batchRows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.Rows.Close()
	r.err = r.end(r.Rows.Err())
}

// Err returns the error of the rows so far and, once they are closed, that of the
// batch.
func (r *batchRows) Err() error {
	if r.closed {
		return r.err
	}
	return r.Rows.Err()
}

func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *batchRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

func (r *batchRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

// firstRow returns the first of the rows that Query has returned.
func firstRow(rows pgx.Rows, err error) pgx.Row {
	if err != nil {
		return noRow{err}
	}
	return rowOf{rows}
}

type rowOf struct{ rows pgx.Rows }

func (r rowOf) Scan(dest ...any) error {
	defer r.rows.Close() // whatever a Scanner of the caller does
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok { // as in pgx: the bytes are gone by the time Scan returns
			return errors.New("pgguard: cannot scan into *pgtype.DriverBytes from QueryRow")
		}
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// txResults are the results of a batch in a fenced transaction.
type txResults struct {
	pgx.BatchResults
	translate func(error) error
}

func (r *txResults) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.translate(err)
}

func (r *txResults) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	return wrapRows(rows, err, r.translate)
}

func (r *txResults) QueryRow() pgx.Row { return txRow{r.BatchResults.QueryRow(), r.translate} }

func (r *txResults) Close() error { return r.translate(r.BatchResults.Close()) }

// carriedResults are those of a batch that has carried BEGIN along, which is not
// the caller's.
type carriedResults struct{ *txResults }

func (carriedResults) Tx() pgx.Tx { return nil }

// noRows are the rows of a query that was not sent. pgx's own are not for this:
// their FieldDescriptions panics.
type noRows struct{ err error }

func (noRows) Close()                                       {}
func (r noRows) Err() error                                 { return r.err }
func (noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (noRows) Next() bool                                   { return false }
func (r noRows) Scan(...any) error                          { return r.err }
func (r noRows) Values() ([]any, error)                     { return nil, r.err }
func (noRows) RawValues() [][]byte                          { return nil }
func (noRows) Conn() *pgx.Conn                              { return nil }
func (noRows) TypeMap() *pgtype.Map                         { return nil }

// noRow is the row of a query that was not sent.
type noRow struct{ err error }

func (r noRow) Scan(...any) error { return r.err }
