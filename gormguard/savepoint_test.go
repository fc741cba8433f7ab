package gormguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/guard"
)

// S34: what was entered inside a savepoint is lost when that is rolled back.
func TestS34_SavepointRollbackDropsTheFence(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		config := quiet()
		config.PrepareStmt = prepare
		d := newDatabase(t, onPostgres, config)
		c := d.cell(1, fresh)
		tx := c.tx.Begin()
		defer tx.Rollback()
		tx.SavePoint("here")
		require.NoError(t, tx.Model(c.item(1)).Update("note", "lost").Error)
		tx.RollbackTo("here")
		require.NoError(t, tx.Error)
		d.raised(c.sku, newerToken) // it is not blocked: nothing holds the gate
		before := c.rows()
		err := tx.Model(c.item(2)).Update("note", "late").Error
		require.ErrorIs(t, err, guard.ErrStale)
		require.ErrorIs(t, tx.Session(&gorm.Session{NewDB: true}).Commit().Error, guard.ErrStale)
		require.Equal(t, before, c.rows())
	}
}

func TestS34_NestedTransactionRollbackDropsTheFence(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onPostgres, nil)
	c := d.cell(1, fresh)
	err := c.tx.Transaction(func(tx *gorm.DB) error {
		require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, tx.Model(c.item(1)).Update("note", "lost").Error)
			return errAbort
		}), errAbort)
		d.raised(c.sku, newerToken)
		return tx.Model(c.item(2)).Update("note", "late").Error
	})
	require.ErrorIs(t, err, guard.ErrStale)
}

// A closure that swallows the refusal must not commit the rest of its work.
func TestSwallowedRefusalIsNotCommitted(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil)
			c := d.cell(1, stale)
			err := c.tx.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, tx.Create(&Tag{ID: 50, Name: "half"}).Error)
				require.ErrorIs(t, tx.Model(c.item(1)).Update("note", "x").Error, guard.ErrStale)
				return nil
			})
			require.ErrorIs(t, err, guard.ErrStale)
			require.Zero(t, c.bare.Find(&Tag{}, 50).RowsAffected)
		})
	}
}

// The caller may go on without what was refused, if that was undone.
func TestRefusalInsideASavepointEndsWithIt(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	c := d.cell(1, stale)
	require.NoError(t, c.tx.Transaction(func(tx *gorm.DB) error {
		require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error }), guard.ErrStale)
		return tx.Create(&Tag{ID: 51, Name: "rest"}).Error
	}))
	require.EqualValues(t, 1, c.bare.Find(&Tag{}, 51).RowsAffected)
}

func TestRawCommitEndsTheFence(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onPostgres, nil)
	c := d.cell(1, fresh)
	tx := c.tx.Begin()
	defer tx.Rollback()
	require.NoError(t, tx.Model(c.item(1)).Update("note", "x").Error)
	require.NoError(t, tx.Exec("COMMIT").Error)
	require.ErrorContains(t, tx.Model(c.item(2)).Update("note", "x").Error, "ended this transaction")
}

// A refusal before a savepoint is not undone with that, also if its own was released.
func TestARefusalOutlivesTheReleaseOfItsSavepoint(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	c := d.cell(1, none)
	tx := c.tx.Begin()
	require.NoError(t, tx.Exec("UPDATE tags SET name = 'half'").Error)
	require.NoError(t, tx.Exec("SAVEPOINT a").Error)
	require.ErrorIs(t, tx.Model(c.item(1)).Update("note", "x").Error, guard.ErrNoFence)
	for _, text := range []string{"RELEASE a", "SAVEPOINT b", "ROLLBACK TO b"} {
		require.NoError(t, tx.Exec(text).Error)
	}
	require.ErrorIs(t, tx.Commit().Error, guard.ErrNoFence)
}
