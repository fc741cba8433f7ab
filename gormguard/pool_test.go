package gormguard_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	moderncsqlite "modernc.org/sqlite"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

// A process may write under a fence that another one has raised. It has one
// connection, and the transaction has that.
func TestTheOnlyConnectionIsEnough(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil)
			c := d.cell(1, fresh)
			db, err := gorm.Open(dialector(e, d.sql), quiet())
			require.NoError(t, err)
			require.NoError(t, db.Use(gormguard.New(gormguard.WithModels(&Item{}), gormguard.WithGuardOptions(sqlguard.WithLockTimeout(time.Minute)))))
			d.sql.SetMaxOpenConns(1)
			require.NoError(t, db.WithContext(c.ctx).Transaction(func(tx *gorm.DB) error {
				if err := gormguard.Enter(tx); err != nil {
					return err
				}
				return tx.Model(c.item(1)).Update("note", "x").Error
			}))
			require.NoError(t, db.WithContext(c.ctx).Model(c.item(2)).Update("note", "y").Error)
		})
	}
}

// What GORM never sees, the driver does: db.DB on a wrapped one.
func TestDBHandleIsGuardedWhereTheDriverIs(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	var list []struct{ Name, File string }
	require.NoError(t, d.bare.Raw("PRAGMA database_list").Scan(&list).Error)
	connector, err := moderncsqlite.NewConnector("file:" + list[0].File + "?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	pool := sql.OpenDB(sqlguard.Wrap(connector, sqlguard.SQLite, sqlguard.WithPassThrough()))
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	db, err := gorm.Open(dialector(onSQLite, pool), quiet())
	require.NoError(t, err)
	p := gormguard.New(gormguard.WithModels(&Item{}))
	require.NoError(t, db.Use(p))

	c := d.cell(1, fresh)
	handle, err := db.DB()
	require.NoError(t, err)
	writes := []func() error{
		func() error { _, err := handle.ExecContext(c.ctx, rawUpdate); return err },
		func() error {
			tx, err := handle.BeginTx(c.ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(c.ctx, rawUpdate); err != nil {
				return err
			}
			return tx.Commit()
		},
		func() error { return db.WithContext(c.ctx).Model(c.item(1)).Update("note", "x").Error },
		func() error { return db.WithContext(c.ctx).Exec(rawUpdate).Error },
	}
	for i, write := range writes {
		require.NoError(t, write(), "%d", i)
	}
	require.NoError(t, p.Raise(t.Context(), fence(c.sku, newerToken)))
	before := c.rows()
	for i, write := range writes {
		require.ErrorIs(t, write(), guard.ErrStale, "%d", i)
	}
	require.Equal(t, before, c.rows())
}
