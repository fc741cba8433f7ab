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
