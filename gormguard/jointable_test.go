package gormguard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

type (
	Cart struct { // knows nothing of its stickers
		ID    int64
		Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Sticker struct { // not guarded
		ID    int64
		Carts []Cart `gorm:"many2many:sticker_carts"`
	}
)

func TestJoinTableThatOnlyTheOtherSideDeclaresIsGuarded(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	require.NoError(t, d.bare.AutoMigrate(&Cart{}, &Sticker{}))
	require.NoError(t, d.bare.Create(&Sticker{ID: 1, Carts: []Cart{{ID: 1}}}).Error)
	db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
	require.NoError(t, err)
	require.NoError(t, db.Use(gormguard.New()))
	require.ErrorIs(t, db.Model(&Sticker{ID: 1}).Association("Carts").Clear(), guard.ErrNoFence)
}

type (
	Shelf struct { // leads to Bin, which leads to Stamp
		ID    int64
		BinID int64
		Bin   Bin
	}
	Bin struct {
		ID     int64
		Stamps []Stamp `gorm:"many2many:bin_stamps"`
		Token  int64   `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Stamp struct{ ID int64 }
)

// stampParsed makes GORM stop where it reads Stamp, once; set by the test below only.
var stampParsed atomic.Pointer[func()]

func (Stamp) TableName() string {
	if wait := stampParsed.Swap(nil); wait != nil {
		(*wait)()
	}
	return "stamps"
}

// What a relation leads to may still be in the making.
func TestJoinTableOfAModelThatIsMetHalfParsed(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	require.NoError(t, d.bare.AutoMigrate(&Bin{}, &Stamp{}, &Shelf{}))
	require.NoError(t, d.bare.Create(&Bin{ID: 1, Stamps: []Stamp{{ID: 1}}}).Error)
	db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
	require.NoError(t, err)
	require.NoError(t, db.Use(gormguard.New()))
	parsing, goOn := make(chan struct{}), make(chan struct{})
	wait := func() { close(parsing); <-goOn }
	stampParsed.Store(&wait)
	done := make(chan error)
	go func() { done <- db.Find(&[]Bin{}).Error }()
	<-parsing
	require.NoError(t, db.Find(&[]Shelf{}).Error)
	close(goOn)
	require.NoError(t, <-done)
	require.ErrorIs(t, db.Model(&Bin{ID: 1}).Association("Stamps").Clear(), guard.ErrNoFence)
}

// Models that were not named in WithModels are met by many goroutines at once.
func TestFirstUseByManyGoroutines(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	for range 5 {
		db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
		require.NoError(t, err)
		require.NoError(t, db.Use(gormguard.New()))
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				var err error
				switch i % 4 {
				case 0:
					err = db.Model(&Owner{ID: 1, SKU: "a"}).Update("name", "x").Error
				case 1:
					err = db.Create(&Item{ID: 1, Tags: []Tag{{ID: 1}}}).Error
				case 2:
					err = db.Model(&Badge{ID: 1}).Update("text", "x").Error
				default:
					err = db.Preload("Items").Preload("Badge").Find(&[]Owner{}).Error
					if err == nil {
						err = db.Delete(&Doc{ID: 1, SKU: "a"}).Error
					}
				}
				if !errors.Is(err, guard.ErrNoFence) {
					t.Error(i, err)
				}
			})
		}
		wg.Wait()
	}
}
