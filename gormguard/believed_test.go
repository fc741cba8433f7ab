package gormguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

// What is written, and not what the statement's model says, decides on the fence:
// GORM joins the model's key to the conditions without brackets, or not at all.
func TestS46_ConditionsThatReachFurtherThanTheModel(t *testing.T) {
	t.Parallel()
	note := clause.Set{{Column: clause.Column{Name: "note"}, Value: "x"}}
	writes := map[string]func(c *cell) *gorm.DB{
		"Or": func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).Where("stock = ?", 3).Or("stock = ?", 1).Update("note", "x")
		},
		"Or first":    func(c *cell) *gorm.DB { return c.tx.Model(c.item(1)).Or("stock = ?", 3).Update("note", "x") },
		"Or delete":   func(c *cell) *gorm.DB { return c.tx.Where("stock = ?", 3).Or("stock = ?", 1).Delete(c.item(1)) },
		"soft delete": func(c *cell) *gorm.DB { return c.tx.Where("id = 2").Or("id = 1").Delete(&Doc{ID: 1, SKU: c.sku}) },
		"text": func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).Where("stock = 3\nOR\nstock = 1").Update("note", "x")
		},
		"brackets": func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).Where("(stock = 3)OR(stock = 1)").Update("note", "x")
		},
		"clause": func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).Where("stock > 0 ORDER BY stock IS NULL").Update("note", "x")
		},
		"expression": func(c *cell) *gorm.DB {
			return c.tx.Where(map[string]any{"stock": gorm.Expr("3 OR stock = 1")}).Delete(c.item(1))
		},
		"clause Set": func(c *cell) *gorm.DB {
			return c.tx.Model(c.item(1)).Where("stock > 0").Clauses(note).Updates(map[string]any{})
		},
		"no key": func(c *cell) *gorm.DB {
			return c.tx.Model([]*Item{c.item(1), {SKU: c.sku}}).Where("stock > 0").Update("note", "x")
		},
		"key of the model":     func(c *cell) *gorm.DB { return c.tx.Model(&Item{ID: 3}).Delete(&Item{}) },
		"key of another model": func(c *cell) *gorm.DB { return c.tx.Model(&Item{}).Delete(&Shadow{ID: 3}) },
	}
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil)
			c := d.cell(1, fresh)
			require.NoError(t, c.bare.Exec("UPDATE items SET sku = 'of another' WHERE id = 3").Error)
			require.NoError(t, c.bare.Exec("UPDATE docs SET sku = 'of another' WHERE id = 2").Error)
			before := c.rows()
			for name, write := range writes {
				require.ErrorIs(t, write(c).Error, guard.ErrNoFence, name)
				require.Equal(t, before, c.rows(), name)
			}
			require.Error(t, c.tx.Model(c.item(1)).Where("stock > 0 RETURNING true").Update("note", "x").Error)
			require.Equal(t, before, c.rows())
		})
	}
}

// The stored rows are read where the models do not answer for them, and only there.
func TestStoredRowsAreReadOnlyWhereTheyMustBe(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	c := d.cell(1, fresh)
	reads := 0
	require.NoError(t, d.db.Callback().Row().After("gorm:row").Register("count", func(*gorm.DB) { reads++ }))
	doNote := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"note"})}
	for name, tt := range map[string]struct {
		reads int
		write func() *gorm.DB
	}{
		"Update": {0, func() *gorm.DB { return c.tx.Model(c.item(1)).Update("note", "x") }},
		"Update and": {0, func() *gorm.DB {
			return c.tx.Model(c.item(1)).Where("stock = ?", 1).Where("note <> 'or'").Update("note", "x")
		}},
		"Update slice":     {0, func() *gorm.DB { return c.tx.Model([]*Item{c.item(1), c.item(2)}).Update("note", "x") }},
		"Select Updates":   {0, func() *gorm.DB { return c.tx.Select("Note").Updates(c.loaded(1)) }},
		"Updates":          {1, func() *gorm.DB { return c.tx.Updates(c.loaded(1)) }},
		"Save":             {1, func() *gorm.DB { return c.tx.Save(c.loaded(1)) }},
		"Save slice":       {1, func() *gorm.DB { return c.tx.Save([]*Item{c.loaded(1), c.loaded(2)}) }},
		"where":            {1, func() *gorm.DB { return c.tx.Model(&Item{}).Where("stock > 0").Update("note", "x") }},
		"Create":           {0, func() *gorm.DB { return c.tx.Create(&Item{ID: 50, SKU: c.sku}) }},
		"Create DoNothing": {0, func() *gorm.DB { return c.tx.Clauses(clause.OnConflict{DoNothing: true}).Create(c.item(1)) }},
		"Create DoUpdates": {0, func() *gorm.DB { return c.tx.Clauses(doNote).Create(c.item(1)) }},
		"Create UpdateAll": {1, func() *gorm.DB { return c.tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(c.item(1)) }},
		"Delete":           {0, func() *gorm.DB { return c.tx.Delete(c.item(3)) }},
	} {
		reads = 0
		require.NoError(t, tt.write().Error, name)
		require.Equal(t, tt.reads, reads, name)
	}
}

// Rows that the statement does not touch need no fence, and a query for those that it
// does has its tables.
func TestStoredRowsAreThoseOfTheStatement(t *testing.T) {
	t.Parallel()
	t.Run("UPDATE FROM", func(t *testing.T) {
		t.Parallel()
		c := newDatabase(t, onPostgres, nil).cell(1, fresh)
		require.NoError(t, c.bare.Exec("UPDATE owners SET sku = 'not asked'").Error)
		write := func() *gorm.DB {
			return c.tx.Model(&Item{}).Clauses(clause.From{Tables: []clause.Table{{Name: "owners"}}}).Where("owners.id = items.owner_id").Update("note", "x")
		}
		require.NoError(t, write().Error)
		require.NoError(t, c.bare.Exec("UPDATE items SET sku = 'of another' WHERE id = 2").Error)
		require.ErrorIs(t, write().Error, guard.ErrNoFence)
	})
	t.Run("LIMIT", func(t *testing.T) {
		t.Parallel()
		c := newDatabase(t, onMariaDB, nil).cell(1, fresh)
		require.NoError(t, c.bare.Exec("UPDATE items SET sku = 'of another' WHERE id = 3").Error)
		require.NoError(t, c.tx.Model(&Item{}).Where("stock > 0").Order("id").Limit(1).Update("note", "x").Error)
		require.NoError(t, c.tx.Where("stock > 0").Order("id asc").Limit(2).Delete(&Item{}).Error)
		require.ErrorIs(t, c.tx.Where("stock > 0").Order("id").Limit(1).Delete(&Item{}).Error, guard.ErrNoFence)
	})
	t.Run("LIMIT in another order", func(t *testing.T) {
		t.Parallel()
		d := newDatabase(t, onMariaDB, nil)
		c := d.cell(1, fresh)
		require.NoError(t, c.bare.Exec("UPDATE items SET sku = 'of another', stock = 1 WHERE id = 3").Error)
		require.ErrorIs(t, c.tx.Where("stock > 0").Order("stock DESC").Limit(3).Delete(&Item{}).Error, guard.ErrNoFence)
		// Where that does not decide, the server may take others the second time.
		require.NoError(t, d.db.Callback().Delete().After("gormguard:resource").Before("gorm:delete").Register("others", func(db *gorm.DB) {
			db.Statement.Clauses["ORDER BY"] = clause.Clause{Name: "ORDER BY", Expression: clause.OrderBy{Columns: []clause.OrderByColumn{{Column: clause.Column{Name: "id"}, Desc: true}}}}
		}))
		tx := c.tx.Where("stock = 1").Or("stock = 9").Order("id").Limit(1).Delete(&Item{})
		require.NoError(t, tx.Error)
		require.EqualValues(t, 1, tx.RowsAffected)
		var left Item
		require.NoError(t, d.bare.First(&left, 3).Error)
	})
	t.Run("LIMIT that finds nothing", func(t *testing.T) {
		t.Parallel()
		c := newDatabase(t, onMariaDB, nil).cell(1, fresh)
		tx := c.tx.Model(&Item{}).Where("stock > 77").Limit(1).Update("note", "x")
		require.NoError(t, tx.Error)
		require.Zero(t, tx.RowsAffected)
	})
	t.Run("LIMIT of more rows than a statement can name", func(t *testing.T) {
		t.Parallel()
		c := newDatabase(t, onMariaDB, nil).cell(1, fresh)
		require.NoError(t, c.bare.Exec("INSERT INTO items (id, sku, note) SELECT seq, ?, 'old' FROM seq_1000_to_67000", c.sku).Error)
		tx := c.tx.Model(&Item{}).Where("note = 'old'").Limit(66_000)
		require.ErrorContains(t, tx.Update("note", "x").Error, "take a smaller LIMIT than 66000")
		require.ErrorContains(t, c.tx.Where("note = 'old'").Limit(66_000).Delete(&Item{}).Error, "take a smaller LIMIT than 66000")
		tx = c.tx.Where("note = 'old'").Limit(65_000).Delete(&Item{})
		require.NoError(t, tx.Error)
		require.EqualValues(t, 65_000, tx.RowsAffected)
	})
	t.Run("LIMIT of a soft delete", func(t *testing.T) {
		t.Parallel()
		c := newDatabase(t, onMariaDB, nil).cell(1, fresh)
		require.NoError(t, c.bare.Exec("UPDATE docs SET sku = 'of another' WHERE id = 2").Error)
		require.NoError(t, c.tx.Where("id > 0").Order("body").Limit(1).Delete(&Doc{}).Error)
		require.ErrorIs(t, c.tx.Where("id > 0").Order("body").Limit(1).Delete(&Doc{}).Error, guard.ErrNoFence)
	})
	t.Run("soft delete brackets what has an OR", func(t *testing.T) {
		t.Parallel()
		c := newDatabase(t, onSQLite, nil).cell(1, fresh)
		require.NoError(t, c.bare.Exec("UPDATE docs SET sku = 'of another' WHERE id = 2").Error)
		tx := c.tx.Model(&Doc{ID: 1}).Where("body = ?", "two").Or("body = ?", "one").Update("body", "x")
		require.NoError(t, tx.Error)
		require.EqualValues(t, 1, tx.RowsAffected)
	})
}

// The table counts, and not the type.
func TestFencedTypeOnATableThatIsNotGuarded(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cell, _ string) {
		require.NoError(t, c.bare.Exec("CREATE TABLE archive AS SELECT * FROM items").Error)
		tx := c.db // without a fence
		require.NoError(t, tx.Table("archive").Create(&Item{ID: 50, SKU: "of anyone"}).Error)
		require.NoError(t, tx.Model(&Item{}).Table("archive").Where("id = 2").Update("note", "x").Error)
		require.NoError(t, tx.Table("archive").Where("id = 1").Delete(&Item{}).Error)
		require.ErrorIs(t, tx.Table("items").Create(&Item{ID: 50, SKU: c.sku}).Error, guard.ErrNoFence)
	})
}

// Voucher has a key by which an upsert may meet a row besides the primary one.
type Voucher struct {
	ID    int64  `gorm:"primaryKey"`
	Code  string `gorm:"size:40;uniqueIndex"`
	SKU   string
	Note  string
	Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
}

func (v Voucher) FenceResource() string { return v.SKU }

type Seal struct {
	ID    int64  `gorm:"primaryKey;autoIncrement:false"`
	Code  []byte `gorm:"size:40;uniqueIndex"`
	SKU   string
	Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
}

func (s Seal) FenceResource() string { return s.SKU }

func TestS46_UpsertByAnotherKey(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newBare(t, e)
			require.NoError(t, d.bare.AutoMigrate(&Voucher{}))
			require.NoError(t, d.bare.Create([]Voucher{{ID: 101, Code: "a", SKU: "of another"}, {ID: 102, Code: "b", SKU: "mine"}}).Error)
			db, err := gorm.Open(dialector(e, d.sql), quiet())
			require.NoError(t, err)
			d.plugin = gormguard.New(gormguard.WithModels(&Voucher{}))
			require.NoError(t, db.Use(d.plugin))
			tx := db.WithContext(d.raised("mine", heldToken))
			on := clause.OnConflict{Columns: []clause.Column{{Name: "code"}}, DoUpdates: clause.AssignmentColumns([]string{"note"})}
			require.ErrorIs(t, tx.Clauses(on).Create(&Voucher{Code: "a", SKU: "mine", Note: "x"}).Error, guard.ErrNoFence)
			require.NoError(t, tx.Clauses(on).Create(&Voucher{Code: "b", SKU: "mine", Note: "x"}).Error)
			require.NoError(t, tx.Clauses(on).Create(&Voucher{Code: "c", SKU: "mine", Note: "x"}).Error)
			if e.name == "sqlite" {
				replace := clause.Insert{Modifier: "OR REPLACE"}
				require.ErrorIs(t, tx.Clauses(replace).Create(&Voucher{Code: "a", SKU: "mine"}).Error, guard.ErrNoFence)
				require.NoError(t, tx.Clauses(replace).Create(&Voucher{Code: "b", SKU: "mine"}).Error)
			}
			var left Voucher
			require.NoError(t, d.bare.First(&left, 101).Error)
			require.Equal(t, Voucher{ID: 101, Code: "a", SKU: "of another"}, left)
		})
	}
}

// MySQL takes "B" for "b", and every key for one of the upsert's.
func TestS46_UpsertByAKeyThatComparesWithoutCase(t *testing.T) {
	t.Parallel()
	d := newDatabaseOf(t, onMariaDB, quiet(), gormguard.ModeFence, &Voucher{}, &Seal{})
	require.NoError(t, d.bare.Create(&Voucher{ID: 102, Code: "cafe", SKU: "mine"}).Error)
	tx := d.db.WithContext(d.raised("mine", heldToken))
	on := clause.OnConflict{DoUpdates: clause.Assignments(map[string]any{"sku": "elsewhere"})}
	for _, code := range []string{"cafe", "CAFE", "cafe ", "café"} {
		require.ErrorIs(t, tx.Clauses(on).Create([]Voucher{{Code: "new", SKU: "mine"}, {Code: code, SKU: "mine"}}).Error, guard.ErrNoFence, code)
	}
	require.NoError(t, d.bare.Exec("ALTER TABLE seals MODIFY code varchar(40)").Error)
	require.NoError(t, d.bare.Create(&Seal{ID: 102, Code: []byte("cafe"), SKU: "mine"}).Error)
	require.ErrorIs(t, tx.Clauses(on).Create([]Seal{{ID: 1, Code: []byte("new"), SKU: "mine"}, {ID: 2, Code: []byte("CAFE"), SKU: "mine"}}).Error, guard.ErrNoFence)
}

// GORM adds to the columns of UpdateAll those that DoUpdates has.
func TestS46_UpsertOfAllAndMore(t *testing.T) {
	t.Parallel()
	c := newDatabase(t, onSQLite, nil).cell(1, fresh)
	on := doUpdates("sku", "elsewhere")
	on.UpdateAll = true
	require.ErrorIs(t, c.tx.Clauses(on).Create(c.item(1)).Error, guard.ErrNoFence)
}
