package gormguard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

type (
	Crate struct {
		ID     int64
		Labels []Label `gorm:"many2many:crate_labels"`
		Token  int64   `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Label struct { // not guarded
		ID     int64
		Crates []Crate `gorm:"many2many:crate_labels"`
	}
)

// The join rows belong to the guarded model, whoever changes them.
func TestJoinTablesOfGuardedModelsAreGuarded(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	require.NoError(t, d.bare.AutoMigrate(&Crate{}, &Label{}))
	require.NoError(t, d.bare.Create(&Crate{ID: 1, Labels: []Label{{ID: 1}}}).Error)
	require.NoError(t, d.bare.Create(&Label{ID: 2}).Error)
	db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
	require.NoError(t, err)
	d.plugin = gormguard.New(gormguard.WithModels(&Crate{}))
	require.NoError(t, db.Use(d.plugin))
	held := d.raised("crate", heldToken)
	require.NoError(t, db.WithContext(held).Model(&Crate{ID: 1}).Association("Labels").Append(&Label{ID: 2}))
	d.raised("crate", newerToken)
	for ctx, want := range map[context.Context]error{held: guard.ErrStale, t.Context(): guard.ErrNoFence} {
		tx := db.WithContext(ctx)
		labels := func() *gorm.Association { return tx.Model(&Crate{ID: 1}).Association("Labels") } // it keeps its error
		for name, err := range map[string]error{
			"append":          labels().Append(&Label{ID: 3}),
			"replace":         labels().Replace(&Label{ID: 2}),
			"delete":          labels().Delete(&Label{ID: 1}),
			"clear":           labels().Clear(),
			"from the others": tx.Model(&Label{ID: 1}).Association("Crates").Clear(),
			"raw SQL":         tx.Exec("DELETE FROM crate_labels").Error,
			"with the owner":  tx.Select("Labels").Delete(&Crate{ID: 1}).Error,
		} {
			require.ErrorIs(t, err, want, name)
		}
	}
	var rows int64
	require.NoError(t, d.bare.Table("crate_labels").Count(&rows).Error)
	require.EqualValues(t, 2, rows)
}
