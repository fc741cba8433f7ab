package gormguard_test

import (
	"database/sql/driver"
	"fmt"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

type (
	Place struct{ Region string }
	Money struct{ cents *big.Int } // nothing in it can be set from outside, and Scan does so in place
	Depot struct {                 // its resource is in columns of all kinds
		ID int64 `gorm:"primaryKey;autoIncrement:false"`
		*Address
		SKU    *string `gorm:"size:40"`
		Place  Place   `gorm:"serializer:json"`
		Number int64
		Stock  int
		Price  Money          `gorm:"type:varchar(20)"`
		Extra  map[string]any `gorm:"serializer:json"`
		Token  int64          `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Address struct{ Street, House string }
)

func (d Depot) FenceResource() string {
	return fmt.Sprintf("%s/%s/%s/%d", d.Street, *d.SKU, d.Place.Region, d.Number) // SKU is never NULL
}

func (m *Money) Scan(v any) error {
	if m.cents == nil {
		m.cents = new(big.Int)
	}
	_, err := fmt.Sscan(fmt.Sprintf("%s", v), m.cents)
	return err
}

func (m Money) Value() (driver.Value, error) {
	if m.cents == nil {
		return "0", nil
	}
	return m.cents.String(), nil
}

func depot(id int64, sku string) *Depot {
	return &Depot{ID: id, Address: &Address{Street: "s"}, SKU: &sku, Place: Place{"eu"}, Number: 2_000_000, Price: Money{big.NewInt(7)}}
}

// A row goes to another resource in whatever type of column that is, and its model
// stays as it was.
func TestS46_ResourceInColumnsOfAllTypes(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabaseOf(t, e, quiet(), gormguard.ModeFence, &Depot{})
			require.NoError(t, d.bare.Create([]*Depot{depot(1, "mine"), depot(2, "other")}).Error)
			tx := d.db.WithContext(d.raised("s/mine/eu/2000000", heldToken))
			mine := depot(1, "mine")
			all := func() (rows []Depot) { require.NoError(t, d.bare.Order("id").Find(&rows).Error); return rows }
			before := all()
			with := func(d *Depot, change func(*Depot)) *Depot { change(d); return d }
			for name, write := range map[string]func() *gorm.DB{
				"pointer":          func() *gorm.DB { return tx.Model(mine).Update("sku", "elsewhere") },
				"pointer, taken":   func() *gorm.DB { return tx.Model(&Depot{}).Where("id = 2").Update("sku", "mine") },
				"pointer, saved":   func() *gorm.DB { return tx.Save(depot(2, "mine")) },
				"serializer":       func() *gorm.DB { return tx.Model(mine).Updates(Depot{Place: Place{"us"}}) },
				"serializer saved": func() *gorm.DB { return tx.Save(with(depot(1, "mine"), func(d *Depot) { d.Place.Region = "us" })) },
				"embedded":         func() *gorm.DB { return tx.Model(mine).Update("street", "elsewhere") },
				"embedded, saved":  func() *gorm.DB { return tx.Save(with(depot(1, "mine"), func(d *Depot) { d.Street = "t" })) },
				"number":           func() *gorm.DB { return tx.Model(mine).Update("number", "2") },
				"upsert":           func() *gorm.DB { return tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(depot(2, "mine")) },
			} {
				require.ErrorIs(t, write().Error, guard.ErrNoFence, name)
				require.Equal(t, before, all(), name)
				require.Equal(t, depot(1, "mine"), mine, name)
			}
			require.ErrorIs(t, tx.Model(mine).Update("number", "010").Error, gormguard.ErrRaw, "is that 10 or 8?")
			for name, write := range map[string]func() *gorm.DB{
				"expression":        func() *gorm.DB { return tx.Model(mine).Update("stock", gorm.Expr("stock + 1")) },
				"type of its own":   func() *gorm.DB { return tx.Model(depot(1, "mine")).Update("price", gorm.Expr("'5'")) },
				"beside it":         func() *gorm.DB { return tx.Model(mine).Update("house", gorm.Expr("'7'")) },
				"map":               func() *gorm.DB { return tx.Model(mine).Update("extra", gorm.Expr("'{}'")) },
				"where":             func() *gorm.DB { return tx.Model(&Depot{}).Where("id = 1").Update("stock", gorm.Expr("stock + 1")) },
				"saved as it was":   func() *gorm.DB { return tx.Save(depot(1, "mine")) },
				"whole numbers":     func() *gorm.DB { return tx.Model(&Depot{}).Where("id = 1").Update("number", 2e6) },
				"expression upsert": func() *gorm.DB { return tx.Clauses(doUpdates("stock", gorm.Expr("7"))).Create(depot(1, "mine")) },
			} {
				require.NoError(t, write().Error, name)
			}
			mine = depot(1, "mine")
			require.NoError(t, tx.Save(mine).Error)
			require.Equal(t, depot(1, "mine"), mine)
			var saved Depot
			require.NoError(t, d.bare.First(&saved, 1).Error)
			require.Equal(t, "7", saved.Price.cents.String())
		})
	}
}

func doUpdates(column string, value any) clause.OnConflict {
	return clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.Assignments(map[string]any{column: value})}
}

// What only the database can say of a resource is refused, and what it can say of
// other columns is not.
func TestS46_ResourceThatOnlyTheDatabaseKnows(t *testing.T) {
	t.Parallel()
	set := clause.Set{{Column: clause.Column{Name: "sku"}, Value: gorm.Expr("note")}}
	writes := map[string]func(c *cell) *gorm.DB{
		"expression": func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Update("sku", gorm.Expr("note")) },
		"where":      func(c *cell) *gorm.DB { return c.tx.Model(&Item{}).Where("id = 1").Update("sku", gorm.Expr("note")) },
		"subquery": func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).Update("sku", c.bare.Model(&Tag{}).Select("name").Where("id = 1"))
		},
		"clause Set": func(c *cell) *gorm.DB {
			return c.tx.Model(&Item{}).Where("id = 1").Clauses(set).Updates(map[string]any{})
		},
		"UpdateColumns": func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).UpdateColumns(map[string]any{"sku": gorm.Expr("note"), "stock": 1})
		},
		"upsert": func(c *cell) *gorm.DB { return c.tx.Clauses(doUpdates("sku", gorm.Expr("'x'"))).Create(c.item(1)) },
		"column": func(c *cell) *gorm.DB {
			return c.tx.Clauses(doUpdates("sku", clause.Column{Name: "note"})).Create(c.item(1))
		},
		"create map": func(c *cell) *gorm.DB {
			return c.tx.Model(&Item{}).Create(map[string]any{"id": 70, "sku": gorm.Expr("'x'")})
		},
		"accent": func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Update("škU", "elsewhere") }, // MySQL takes it for sku
		"float":  func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Update("sku", 5.0) },         // "5.0" in SQLite
		"builder": func(c *cell) *gorm.DB {
			c.tx.Statement.Clauses["SET"] = clause.Clause{Name: "SET", Expression: set[:0], AfterExpression: gorm.Expr("sku = note")}
			return c.tx.Model(&Item{}).Where("id = 1").Updates(map[string]any{})
		},
	}
	for _, e := range engines {
		for mode, m := range modes {
			t.Run(e.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				c := newDatabase(t, e, nil, gormguard.WithMode(m)).cell(1, fresh)
				before := c.rows()
				for name, write := range writes {
					if name == "builder" {
						c.tx = c.tx.Session(&gorm.Session{}).Where("1 = 1")
					}
					err := write(c).Error
					c.tx = c.db.WithContext(c.ctx)
					require.ErrorIs(t, err, gormguard.ErrRaw, name)
					require.ErrorContains(t, err, "nothing was written; gormguard.Unguarded lets it through", name)
					require.Equal(t, before, c.rows(), name)
				}
				require.ErrorContains(t, writes["UpdateColumns"](c).Error, `it sets "sku" to what only the database can say`)
			})
		}
	}
}

// A column is the same one in quotes, in another case, and where Omit spells it in
// another way than the map.
func TestS46_NamesOfTheResourcesColumn(t *testing.T) {
	t.Parallel()
	quotes := map[string][]string{"sqlite": {"`sku`", `"sku"`, "`items`.`sku`"}, "postgres": {`"sku"`}, "mysql": {"`sku`", "`items`.`sku`", "SkU"}}
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := newDatabase(t, e, nil).cell(1, fresh)
			for _, name := range append(quotes[e.name], "items.sku") {
				require.ErrorIs(t, c.tx.Model(c.item(1)).Update(name, "elsewhere").Error, guard.ErrNoFence, name)
			}
			err := c.tx.Model(c.item(1)).Omit("sku").Updates(map[string]any{"SkU": "elsewhere"}).Error
			require.ErrorIs(t, err, guard.ErrNoFence)
		})
	}
}

// A column that a model does not have, or that is left out, is the database's.
func TestS46_NewRowWithoutTheResourcesColumn(t *testing.T) {
	t.Parallel()
	c := newDatabase(t, onSQLite, nil).cell(1, fresh)
	require.NoError(t, c.bare.Exec("ALTER TABLE items ADD COLUMN beside text").Error)
	require.NoError(t, c.tx.Model(c.item(1)).Update("beside", gorm.Expr("note")).Error)
	require.ErrorIs(t, c.tx.Omit("SKU").Create(&Item{ID: 60, SKU: c.sku}).Error, guard.ErrNoFence)
	require.ErrorIs(t, c.tx.Select("ID", "Note").Create(&Item{ID: 60, SKU: c.sku}).Error, guard.ErrNoFence)
	require.NoError(t, c.tx.Omit("Note").Create(&Item{ID: 60, SKU: c.sku}).Error)

	d := newDatabaseOf(t, onSQLite, quiet(), gormguard.ModeFence, &Berth{})
	tx := d.db.WithContext(d.raised("north", heldToken))
	require.NoError(t, tx.Create(&Berth{}).Error)
	require.NoError(t, tx.Model(&Berth{}).Create(map[string]any{"id": 7}).Error)
	require.ErrorIs(t, tx.Create([]Berth{{Hall: "north"}, {Hall: "south"}}).Error, guard.ErrNoFence)
}

type Berth struct {
	ID    int64
	Hall  string `gorm:"default:north"`
	Token int64  `gorm:"column:fence_token;fence;not null;default:0"`
}

func (b Berth) FenceResource() string { return b.Hall }

type Coded struct { // its resource has at least three letters
	ID    int64 `gorm:"primaryKey;autoIncrement:false"`
	SKU   string
	Note  string
	Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
}

func (c Coded) FenceResource() string { return "wh:" + c.SKU[:3] }

// FenceResource is called with values that no row ever had, and may panic then. Where
// a row is so, GORM's transaction does not stay open with the fence in it.
func TestFenceResourceThatPanics(t *testing.T) {
	t.Parallel()
	for mode, m := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDatabaseOf(t, onSQLite, quiet(), m, &Coded{})
			tx := d.db.WithContext(d.raised("wh:abc", heldToken))
			require.NoError(t, tx.Create(&Coded{ID: 1, SKU: "abcdef"}).Error)
			require.NoError(t, tx.Model(&Coded{ID: 1, SKU: "abcdef"}).Update("note", "x").Error)
			require.NoError(t, tx.Model(&Coded{ID: 1}).Update("note", "x").Error)
			require.NoError(t, tx.Save(&Coded{ID: 1, SKU: "abcdef", Note: "y"}).Error)
			require.NoError(t, tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&Coded{ID: 1, SKU: "abcdef"}).Error)
			require.NoError(t, tx.Model(&Coded{}).Where("id = 1").Update("note", "x").Error)
			require.NoError(t, tx.Where("id = 7").Delete(&Coded{}).Error)
			require.NoError(t, d.bare.Create(&Coded{ID: 2, SKU: "a"}).Error)
			require.Panics(t, func() { tx.Model(&Coded{}).Where("id = 2").Update("note", "x") })
			require.Panics(t, func() { tx.Create(&Coded{ID: 3}) })
			require.Zero(t, d.sql.Stats().InUse)
		})
	}
}
