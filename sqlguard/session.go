package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

// A session is a connection in whatever shape: that of database/sql, or of a
// driver. Arguments are strings, int64 and nil.
type session interface {
	exec(ctx context.Context, query string, args ...any) (driver.Result, error)
	// row scans the first row into *int64 and *string; found is false if there
	// is none.
	row(ctx context.Context, query string, args []any, dest ...any) (found bool, err error)
}

// sqlSession is a session of database/sql.
type sqlSession struct{ tx Tx }

func (s sqlSession) exec(ctx context.Context, query string, args ...any) (driver.Result, error) {
	return s.tx.ExecContext(ctx, query, args...)
}

func (s sqlSession) row(ctx context.Context, query string, args []any, dest ...any) (found bool, err error) {
	rows, err := s.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	if !rows.Next() {
		return false, rows.Err()
	}
	if err := rows.Scan(dest...); err != nil {
		return false, err
	}
	return true, rows.Err()
}

// within returns a context whose statements a wrapped connection takes as they
// are: they are those that fence. A transaction begun with it will have entered
// held by the time that others use it.
func within(ctx context.Context, held ...guard.Fence) context.Context {
	return context.WithValue(ctx, withinKey{}, held)
}

type withinKey struct{}

func isWithin(ctx context.Context) bool { return ctx.Value(withinKey{}) != nil }

// because adds the cause of ctx's end to an error that comes from it: a lease's
// context says why it was lost, a driver only that it was cancelled.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// interrupted is because for an error that may have come without the end of ctx, such
// as that of a function. Drivers ask the server to end a statement, each in its way, and
// database/sql has rolled back the transaction by then.
func interrupted(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone) ||
		sqlerror.State(err) == "57014" || sqlerror.MySQLNumber(err) == mysqlInterrupted || sqlerror.SQLiteCode(err)&0xff == sqliteInterrupt {
		return because(ctx, err)
	}
	return err
}
