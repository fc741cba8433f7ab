package gormguard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// A lease's context says why it ended, and so does every statement under it.
func TestErrorsSayWhyTheContextEnded(t *testing.T) {
	t.Parallel()
	lost := errors.New("the lease was lost")
	for _, e := range engines {
		for name, config := range map[string]*gorm.Config{
			"default":                quiet(),
			"SkipDefaultTransaction": {Logger: quiet().Logger, SkipDefaultTransaction: true, DisableForeignKeyConstraintWhenMigrating: true},
			"PrepareStmt":            {Logger: quiet().Logger, PrepareStmt: true, DisableForeignKeyConstraintWhenMigrating: true},
		} {
			t.Run(e.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, e, config)
				held := d.raised("sku", 1)
				require.NoError(t, d.db.WithContext(held).Create(&Item{ID: 1, SKU: "sku"}).Error)
				says := func(what string, err error) {
					require.ErrorIs(t, err, lost, what)
					require.Equal(t, 1, strings.Count(err.Error(), lost.Error()), "%s: %v", what, err)
				}

				ctx, end := context.WithCancelCause(held)
				end(lost)
				db := d.db.WithContext(ctx)
				for what, run := range map[string]func(db *gorm.DB) error{
					"Save":         func(db *gorm.DB) error { return db.Save(&Item{ID: 1, SKU: "sku"}).Error },
					"Exec":         func(db *gorm.DB) error { return db.Exec("UPDATE items SET note = 'x'").Error },
					"Exec of tags": func(db *gorm.DB) error { return db.Exec("UPDATE tags SET name = 'x'").Error },
					"Find":         func(db *gorm.DB) error { return db.Find(&[]Item{}).Error },
					"Raw":          func(db *gorm.DB) error { return db.Raw("SELECT id FROM items").Scan(new(int)).Error },
					"Row":          func(db *gorm.DB) error { return db.Raw("SELECT id FROM items").Row().Scan(new(int)) },
				} {
					says(what, run(db))
					if e.name == "sqlite" {
						continue // one transaction that ends is enough, for it keeps the lock
					}
					// The second statement of a transaction, whose context ends meanwhile.
					ctx, end := context.WithCancelCause(held)
					err := d.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
						require.NoError(t, tx.Save(&Item{ID: 1, SKU: "sku"}).Error)
						end(lost)
						return run(tx)
					})
					says("tx "+what, err)
				}
				says("Begin", db.Begin().Error)

				ctx, end = context.WithCancelCause(held)
				tx := d.db.WithContext(ctx).Begin()
				require.NoError(t, tx.Save(&Item{ID: 1, SKU: "sku", Note: "lost"}).Error)
				end(lost)
				says("Commit", tx.Commit().Error)
				var item Item
				require.NoError(t, d.bare.Take(&item, 1).Error)
				require.Empty(t, item.Note)
			})
		}
	}
}
