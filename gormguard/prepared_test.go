package gormguard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

// A statement that GORM has prepared under a fence, or for somebody without one, can be
// found in its cache by others.
func TestACacheOfPreparedStatementsIsNoWayAroundTheGuard(t *testing.T) {
	t.Parallel()
	for _, e := range []engine{onSQLite, onPostgres, onMariaDB} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			config := quiet()
			config.PrepareStmt = true
			d := newDatabase(t, e, config)
			const text = "UPDATE items SET note = 'late' WHERE id = 1"
			direct := func(ctx context.Context, db *gorm.DB) error {
				_, err := db.Statement.ConnPool.ExecContext(ctx, text)
				return err
			}
			c := d.cell(1, fresh)
			require.NoError(t, c.tx.Transaction(func(tx *gorm.DB) error { return tx.Exec(text).Error }))
			c.raised(c.sku, newerToken)
			before := c.rows()
			for ctx, want := range map[context.Context]error{c.ctx: guard.ErrStale, context.Background(): guard.ErrNoFence} {
				tx := d.db.Begin()
				require.ErrorIs(t, direct(ctx, tx), want)
				require.NoError(t, tx.Rollback().Error)
				require.ErrorIs(t, d.db.Transaction(func(tx *gorm.DB) error {
					require.ErrorIs(t, tx.Statement.ConnPool.QueryRowContext(ctx, text).Scan(), want)
					return nil
				}), want, "a refusal dooms")
			}
			require.NoError(t, gormguard.Unguarded(d.db, "repair").Exec("UPDATE items SET note = 'x' WHERE id = 0").Error)
			_, err := d.db.Statement.ConnPool.ExecContext(context.Background(), "UPDATE items SET note = 'x' WHERE id = 0")
			require.ErrorIs(t, err, guard.ErrNoFence)
			require.Equal(t, before, c.rows())
		})
	}
}
