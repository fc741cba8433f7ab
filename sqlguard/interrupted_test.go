package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/sqlguard"
)

// The context of a lease says why the lease was lost, and so does whatever it
// interrupts.
func TestInterruptedStatementSaysWhy(t *testing.T) {
	slow := map[sqlguard.Dialect]string{
		sqlguard.Postgres: "select pg_sleep(10)",
		sqlguard.MySQL:    "select sleep(10)",
		sqlguard.SQLite:   "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000000) select count(*) from n",
	}
	eachTarget(t, func(t *testing.T, db *database) {
		wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
		onWrapped, err := sqlguard.New(wrapped, db.dialect)
		require.NoError(t, err)
		slow := slow[db.dialect]
		exec := func(ctx context.Context, tx *sql.Tx) error {
			var n any
			return tx.QueryRowContext(ctx, slow).Scan(&n)
		}
		for name, call := range map[string]func(ctx context.Context) error{
			"InTx": func(ctx context.Context) error {
				return db.guard.InTx(ctx, func(tx *sql.Tx) error { return exec(ctx, tx) })
			},
			"function": func(ctx context.Context) error {
				return db.guard.InTx(ctx, func(tx *sql.Tx) error { _ = exec(ctx, tx); return ctx.Err() })
			},
			"InTx on a wrapped database": func(ctx context.Context) error {
				return onWrapped.InTx(ctx, func(tx *sql.Tx) error { return exec(ctx, tx) })
			},
			"a transaction of a wrapped database": func(ctx context.Context) error {
				tx, err := wrapped.BeginTx(context.WithoutCancel(ctx), nil)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				_, err = tx.ExecContext(ctx, slow)
				return err
			},
			"a statement of a wrapped database": func(ctx context.Context) error {
				_, err := wrapped.ExecContext(ctx, slow)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				lost := errors.New("lock: lost")
				held, _ := db.raised("r:"+name, 1, "A")
				ctx, cancel := context.WithTimeoutCause(held, 700*time.Millisecond, lost)
				defer cancel()
				require.ErrorIs(t, call(ctx), lost)
			})
		}
	})
}
