package gormguard_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

// A row that changes its resource appears in the middle of the work of that one's
// holder, so it takes both fences, as under the trigger of migrations.Protect.
func TestS46_RowIsNotMovedToAResourceOfAnother(t *testing.T) {
	t.Parallel()
	set := clause.Set{{Column: clause.Column{Name: "sku"}, Value: "elsewhere"}}
	moves := map[string]func(c *cell) error{
		"Update":         fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Update("sku", "elsewhere") }),
		"Updates struct": fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Updates(Item{SKU: "elsewhere"}) }),
		"Updates shadow": fn(func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).Updates(struct{ SKU string }{"elsewhere"})
		}),
		"Updates map":  fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Updates(map[string]any{"SKU": "elsewhere"}) }),
		"Select":       fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Select("sku").Updates(Item{}) }), // to none
		"UpdateColumn": fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).UpdateColumn("sku", "elsewhere") }),
		"where":        fn(func(c *cell) *gorm.DB { return c.tx.Model(&Item{}).Where("id = 1").Update("sku", "elsewhere") }),
		"several":      fn(func(c *cell) *gorm.DB { return c.tx.Model([]*Item{c.item(1), c.item(2)}).Update("sku", "elsewhere") }),
		"other case":   fn(func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Updates(map[string]any{"Sku": "elsewhere"}) }),
		"Save":         fn(func(c *cell) *gorm.DB { i := c.loaded(1); i.SKU = "elsewhere"; return c.tx.Save(i) }),
		"Save to none": fn(func(c *cell) *gorm.DB { i := c.loaded(1); i.SKU = ""; return c.tx.Save(i) }),
		"soft model":   fn(func(c *cell) *gorm.DB { return c.tx.Model(&Doc{ID: 1, SKU: c.sku}).Update("sku", "elsewhere") }),
		"clause Set": fn(func(c *cell) *gorm.DB {
			return c.tx.Model(&Item{}).Where("id = 1").Clauses(set).Updates(map[string]any{})
		}),
		"FirstOrCreate": fn(func(c *cell) *gorm.DB {
			return c.tx.Where("id = 1").Assign(Item{SKU: "elsewhere"}).FirstOrCreate(&Item{})
		}),
		"DoUpdates": fn(func(c *cell) *gorm.DB {
			on := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.Assignments(map[string]any{"sku": "elsewhere"})}
			return c.tx.Clauses(on).Create(c.item(1))
		}),
		"G": func(c *cell) error {
			_, err := gorm.G[Item](c.db).Where("id = 1").Update(c.ctx, "sku", "elsewhere")
			return err
		},
	}
	for mode, m := range modes {
		t.Run(mode, func(t *testing.T) {
			d := newDatabase(t, onSQLite, nil, gormguard.WithMode(m))
			n := 0
			for name, move := range moves {
				c := d.cell(n, fresh)
				n++
				before := c.rows()
				require.ErrorIs(t, move(c), guard.ErrNoFence, name)
				require.Equal(t, before, c.rows(), name)
			}
			if m != gormguard.ModeFence { // one fence a statement
				return
			}
			for name, move := range moves {
				if name == "Select" || name == "Save to none" {
					continue
				}
				c := d.cell(n, fresh)
				n++
				other := fence("elsewhere", guard.Token(100+n))
				require.NoError(t, d.plugin.Raise(t.Context(), other))
				c.ctx = guard.NewContext(c.ctx, other)
				c.tx = d.db.WithContext(c.ctx)
				require.NoError(t, move(c), name)
			}
		})
	}
}

// What changes nothing of the resource takes no other fence.
func TestS46_RowThatStaysNeedsItsOwnFenceOnly(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	c := d.cell(0, fresh)
	for name, write := range map[string]*gorm.DB{
		"omitted":    c.tx.Model(c.item(1)).Omit("SKU").Updates(Item{SKU: "elsewhere", Note: "x"}),
		"selected":   c.tx.Model(c.item(1)).Select("Note").Updates(Item{SKU: "elsewhere", Note: "y"}),
		"the same":   c.tx.Model(c.item(1)).Updates(map[string]any{"sku": c.sku, "note": "z"}),
		"expression": c.tx.Model(c.item(1)).Updates(map[string]any{"stock": gorm.Expr("stock + 1"), "note": "u"}),
	} {
		require.NoError(t, write.Error, name)
		require.EqualValues(t, 1, write.RowsAffected, name)
	}
}

// The other direction: whoever has the fence of one resource does not make a row of
// another his own by saying that it is.
func TestS46_RowIsNotTakenFromAnotherResource(t *testing.T) {
	t.Parallel()
	taken := func(c *cell) *Item { i := c.loaded(1); i.SKU = "mine"; return i }
	by := func(columns ...string) clause.OnConflict {
		return clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns(columns)}
	}
	takes := map[string]func(c *cell) *gorm.DB{
		"Save":       func(c *cell) *gorm.DB { return c.tx.Save(taken(c)) },
		"Updates":    func(c *cell) *gorm.DB { return c.tx.Updates(taken(c)) },
		"Select":     func(c *cell) *gorm.DB { return c.tx.Select("SKU").Updates(taken(c)) },
		"Update":     func(c *cell) *gorm.DB { return c.tx.Model(taken(c)).Update("sku", "mine") },
		"Save slice": func(c *cell) *gorm.DB { return c.tx.Save([]*Item{{ID: 60, SKU: "mine"}, taken(c)}) },
		"UpdateAll": func(c *cell) *gorm.DB {
			return c.tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&Item{ID: 1, SKU: "mine", Note: "taken"})
		},
		"DoUpdates": func(c *cell) *gorm.DB { return c.tx.Clauses(by("sku")).Create(&Item{ID: 1, SKU: "mine"}) },
		"UpdateAll map": func(c *cell) *gorm.DB {
			return c.tx.Model(&Item{}).Clauses(by("sku", "note")).Create(map[string]any{"id": 1, "sku": "mine", "stock": 1, "note": "taken"})
		},
		"soft deleted": func(c *cell) *gorm.DB {
			return c.tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&Doc{ID: 2, SKU: "mine"})
		},
		"FullSaveAssociations": func(c *cell) *gorm.DB {
			o := Owner{ID: 50, SKU: "mine", Items: []Item{*taken(c)}}
			return c.tx.Session(&gorm.Session{FullSaveAssociations: true}).Create(&o)
		},
	}
	for _, e := range engines {
		for mode, m := range modes {
			t.Run(e.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, e, nil, gormguard.WithMode(m))
				c := d.cell(1, fresh)
				both := c.ctx
				require.NoError(t, c.bare.Exec("UPDATE docs SET deleted_at = '2026-01-01' WHERE id = 2").Error)
				mine := fence("mine", heldToken)
				require.NoError(t, d.plugin.Raise(t.Context(), mine))
				c.ctx = guard.NewContext(t.Context(), mine)
				c.tx = d.db.WithContext(c.ctx)
				before := c.rows()
				for name, take := range takes {
					require.ErrorIs(t, take(c).Error, guard.ErrNoFence, name)
					require.Equal(t, before, c.rows(), name)
				}
				if m == gormguard.ModeFence { // one fence a statement
					c.tx = d.db.WithContext(guard.NewContext(both, mine))
					require.NoError(t, takes["Save"](c).Error)
				}
			})
		}
	}
}

type (
	Parcel struct { // belongs to its van's resource
		ID    int64 `gorm:"primaryKey;autoIncrement:false"`
		VanID int64
		Van   *Van
		Note  string
		Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Van struct {
		ID   int64 `gorm:"primaryKey"`
		Name string
	}
)

func (p Parcel) FenceResource() string { return fmt.Sprint("van:", p.VanID) }

// GORM takes a foreign key from the model that is in the field beside it, whatever
// the key said before.
func TestS46_RowIsNotMovedByTheModelItBelongsTo(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	require.NoError(t, d.bare.AutoMigrate(&Van{}, &Parcel{}))
	require.NoError(t, d.bare.Create(&Parcel{ID: 1, Van: &Van{ID: 1}}).Error)
	db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
	require.NoError(t, err)
	d.plugin = gormguard.New(gormguard.WithModels(&Parcel{}))
	require.NoError(t, db.Use(d.plugin))
	tx := db.WithContext(d.raised("van:1", heldToken))
	moved := func() *Parcel { return &Parcel{ID: 1, VanID: 1, Van: &Van{ID: 2}, Note: "x"} }
	for name, write := range map[string]func() error{
		"Save":    func() error { return tx.Save(moved()).Error },
		"Updates": func() error { return tx.Updates(moved()).Error },
		"Update":  func() error { return tx.Model(moved()).Update("note", "x").Error },
		"map": func() error {
			return tx.Model(&Parcel{ID: 1, VanID: 1}).Updates(map[string]any{"Van": &Van{ID: 2}}).Error
		},
		"Replace": func() error { return tx.Model(&Parcel{ID: 1, VanID: 1}).Association("Van").Replace(&Van{ID: 2}) },
		"Create":  func() error { p := moved(); p.ID = 3; return tx.Create(p).Error },
		"new van": func() error { p := moved(); p.Van.ID = 0; return tx.Save(p).Error },
	} {
		require.ErrorIs(t, write(), guard.ErrNoFence, name)
		var parcels []Parcel
		require.NoError(t, d.bare.Find(&parcels).Error)
		require.Equal(t, []Parcel{{ID: 1, VanID: 1}}, parcels, name)
	}
	require.NoError(t, tx.Omit("Van").Save(moved()).Error)
	same := moved()
	same.Van.ID = 1
	require.NoError(t, tx.Save(same).Error)
	require.NoError(t, tx.Create(&Parcel{ID: 3, Van: &Van{ID: 1}}).Error) // the key is the van's
}
