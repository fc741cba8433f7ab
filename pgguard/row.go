package pgguard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/guard"
)

const defaultColumn = "fence_token"

// ErrFilter: [UpdateRow] found the row, but not its filter met. It is [pgx.ErrNoRows] too.
var ErrFilter error = errFilter{}

// errFilter has not the text of pgx.ErrNoRows, because the row is there.
type errFilter struct{}

func (errFilter) Error() string { return "filter not met" }
func (errFilter) Unwrap() error { return pgx.ErrNoRows }

// A RowUpdate is one row to be changed under the row rule.
type RowUpdate struct {
	Table    pgx.Identifier // its name, or schema and name
	Resource string         // whose fence, from the context, the row is written under
	Key      map[string]any // columns and values that pin exactly one row; none may be nil
	Set      map[string]any // columns and new values, or expressions made by Expr; may be empty
	Filter   Expression     // an additional condition, such as Expr("stock >= ?", 3); the zero Expression is none
	Column   string         // the column that keeps the token; defaults to "fence_token"
}

// UpdateRow changes one row under the weaker row rule, and stamps it with the
// token of the fence that ctx carries for u.Resource: the row must not have been
// written under a later token. It takes one round trip.
//
// The rule stops a late writer once a later holder has written this row. It does
// not see the time between the later holder's read and its write, an insert, or a
// delete and re-insert: [guard.AdmitRow]. Inside a fenced transaction all that is
// taken care of, and the stamp only tells under which token the rule last wrote the
// row. Other writes, fenced or not, leave the stamp as it is: a row that is guarded
// by the rule must be written through it alone.
//
// It returns
//
//   - [guard.ErrNoFence], before anything is sent, if ctx has no fence of the
//     resource;
//   - a [*guard.StaleError] if the row was written under a later token;
//   - [pgx.ErrNoRows] if there is no row of that key, or [ErrFilter] as well if
//     there is one and the filter kept it from being changed;
//   - another error, which has aborted the transaction, if the key pins several
//     rows or several were changed, or the table has no column of that name.
//
// In all these cases nothing was written. tx is a transaction, or a pool or
// [Guard] for a transaction of its own.
func UpdateRow(ctx context.Context, tx interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}, u RowUpdate,
) error {
	f, ok := guard.FromContext(ctx, u.Resource)
	if !ok {
		return fmt.Errorf("pgguard: update row: %w of %q in the context; acquire a lease and use its context; nothing was sent", guard.ErrNoFence, u.Resource)
	}
	if err := f.Validate(); err != nil {
		return err
	}
	if u.Column == "" {
		u.Column = defaultColumn
	}
	update, look, err := u.statements(f.Token)
	if err != nil {
		return fmt.Errorf("pgguard: update row of %s: %w; nothing was sent", u.Table.Sanitize(), err)
	}
	if tx == nil {
		return fmt.Errorf("pgguard: update row of %s: the transaction is nil; nothing was sent", u.Table.Sanitize())
	}

	// Two statements and not one with a CTE: at READ COMMITTED an update that
	// waits for a rival's row lock goes on with the rival's version of the row,
	// while the rest of its statement still sees the one from before the wait.
	// That would take a stale writer for one whose filter is not met. The second
	// statement sees what the update has decided on.
	var b pgx.Batch
	b.Queue(update.sql, update.args...)
	b.Queue(look.sql, look.args...)
	results := tx.SendBatch(ctx, &b)
	changed, token, met, err := readUpdate(results)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return fmt.Errorf("pgguard: update row of %s: %w", u.Table.Sanitize(), interrupted(ctx, u.explain(err)))
	case changed:
		return nil
	case token == nil:
		return fmt.Errorf("pgguard: update row of %s: no row of that key, nothing was written: %w", u.Table.Sanitize(), pgx.ErrNoRows)
	case !guard.AdmitRow(*token, f.Token):
		return &guard.StaleError{Held: f, Current: guard.Fence{Resource: f.Resource, Token: *token}}
	case met:
		return fmt.Errorf("pgguard: update row of %s: the row was changed at the same moment, nothing was written, try again: %w", u.Table.Sanitize(), ErrFilter)
	default:
		return fmt.Errorf("pgguard: update row of %s: %w: the row of that key is there and the condition does not hold for it; nothing was written", u.Table.Sanitize(), ErrFilter)
	}
}

func readUpdate(results pgx.BatchResults) (changed bool, token *guard.Token, met bool, err error) {
	if err := results.QueryRow().Scan(&changed); err != nil {
		return false, nil, false, err
	}
	err = results.QueryRow().Scan(&token, &met)
	return changed, token, met, err
}
