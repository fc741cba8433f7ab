package gormguard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

type (
	// A Region adds a condition to every write, and hides what queries are not to see.
	Region int64

	regional struct{ field *schema.Field }

	Pallet struct {
		Row    int64 `gorm:"primaryKey;autoIncrement:false"`
		Place  int64 `gorm:"primaryKey;autoIncrement:false"`
		Region Region
		SKU    string
		Note   string
		Token  int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
)

func (p Pallet) FenceResource() string { return p.SKU }

func (Region) QueryClauses(f *schema.Field) []clause.Interface { return []clause.Interface{hidden{f}} }

func (Region) UpdateClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{regional{f}}
}

func (Region) DeleteClauses(f *schema.Field) []clause.Interface {
	return []clause.Interface{regional{f}}
}

func (regional) Name() string               { return "" }
func (regional) Build(clause.Builder)       {}
func (regional) MergeClause(*clause.Clause) {}

func (r regional) ModifyStatement(stmt *gorm.Statement) {
	stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.Gt{Column: r.field.DBName, Value: 0}}})
}

type hidden regional

func (hidden) Name() string               { return "" }
func (hidden) Build(clause.Builder)       {}
func (hidden) MergeClause(*clause.Clause) {}

func (h hidden) ModifyStatement(stmt *gorm.Statement) {
	stmt.AddClause(clause.Where{Exprs: []clause.Expression{clause.Eq{Column: h.field.DBName, Value: 1}}})
}

func TestS46_RowsThatTheTypeOfAColumnAddsOrHides(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabaseOf(t, e, quiet(), gormguard.ModeFence, &Pallet{})
			tx := d.db.WithContext(d.raised("mine", heldToken))
			for _, region := range []Region{1, 2} {
				theirs := Pallet{Row: 1, Place: int64(region), Region: region, SKU: "of another"}
				require.NoError(t, d.bare.Create(&theirs).Error)
				require.ErrorIs(t, tx.Model(&Pallet{}).Update("note", "x").Error, guard.ErrNoFence)
				require.ErrorIs(t, tx.Model(&Pallet{}).Where("place > 0").Update("note", "x").Error, guard.ErrNoFence)
				require.ErrorIs(t, tx.Delete(&Pallet{}).Error, guard.ErrNoFence)
				var left []Pallet
				require.NoError(t, d.bare.Raw("SELECT * FROM pallets").Scan(&left).Error)
				require.Equal(t, []Pallet{theirs}, left)
				require.NoError(t, d.bare.Exec("DELETE FROM pallets").Error)
			}
		})
	}
}

func TestS46_RowWhoseKeyIsZeroInPart(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabaseOf(t, e, quiet(), gormguard.ModeFence, &Pallet{})
			require.NoError(t, d.bare.Create([]Pallet{{Row: 1, Place: 0, Region: 1, SKU: "mine"}, {Row: 1, Place: 1, Region: 1, SKU: "of another"}}).Error)
			tx := d.db.WithContext(d.raised("mine", heldToken))
			require.NoError(t, tx.Model([]Pallet{{Row: 1}}).Update("note", "x").Error)
			require.ErrorIs(t, tx.Model(&Pallet{Row: 1}).Update("note", "x").Error, guard.ErrNoFence, "GORM leaves out the zero")
			require.NoError(t, tx.Delete(&Pallet{Row: 1}).Error)
			require.ErrorIs(t, tx.Delete(&Pallet{Row: 1, Place: 1}).Error, guard.ErrNoFence)
		})
	}
}

// A row is compared with, and stamped by, its own fence.
func TestS46_RowAnswersToOneFence(t *testing.T) {
	t.Parallel()
	a := func() *Item { return &Item{ID: 1, SKU: "a"} }
	writes := map[string]func(tx *gorm.DB) *gorm.DB{
		"Or":        func(tx *gorm.DB) *gorm.DB { return tx.Model(a()).Or("id = 2").Update("note", "x") },
		"Or delete": func(tx *gorm.DB) *gorm.DB { return tx.Or("id = 2").Delete(a()) },
		"Save":      func(tx *gorm.DB) *gorm.DB { return tx.Save(&Item{ID: 2, SKU: "a"}) },
		"UpdateAll": func(tx *gorm.DB) *gorm.DB { return tx.Clauses(updateAll).Create(&Item{ID: 2, SKU: "a"}) },
	}
	for _, e := range engines {
		for _, mode := range []string{"row", "both"} {
			t.Run(e.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, e, nil, gormguard.WithMode(modes[mode]))
				require.NoError(t, d.bare.Create([]Item{{ID: 1, SKU: "a"}, {ID: 2, SKU: "b", Token: 9}}).Error)
				ctxA := d.raised("a", 100)
				f, _ := guard.FromContext(ctxA, "a")
				tx := d.db.WithContext(guard.NewContext(d.raised("b", 7), f))
				for name, write := range writes {
					require.ErrorIs(t, write(tx).Error, guard.ErrNoFence, name)
					var b Item
					require.NoError(t, d.bare.First(&b, 2).Error)
					require.Equal(t, Item{ID: 2, SKU: "b", Token: 9}, b, name)
				}
				require.NoError(t, tx.Save([]*Item{a(), {ID: 3, SKU: "b"}}).Error)
				require.NoError(t, tx.Save([]*Item{a(), {ID: 3, SKU: "b"}}).Error)
			})
		}
	}
}

func TestS46_UpdateThatDeletesWhatIsInItsWay(t *testing.T) {
	t.Parallel()
	d := newDatabaseOf(t, onSQLite, quiet(), gormguard.ModeFence, &Voucher{})
	require.NoError(t, d.bare.Create([]Voucher{{ID: 101, Code: "a", SKU: "of another"}, {ID: 102, Code: "b", SKU: "mine"}}).Error)
	tx := d.db.WithContext(d.raised("mine", heldToken))
	update := func(modifier string) error {
		return tx.Model(&Voucher{ID: 102, SKU: "mine"}).Clauses(clause.Update{Modifier: modifier}).Update("code", "a").Error
	}
	require.ErrorIs(t, update("OR REPLACE"), gormguard.ErrRaw)
	require.NoError(t, update("OR IGNORE"))
	var left []Voucher
	require.NoError(t, d.bare.Order("id").Find(&left).Error)
	require.Equal(t, []Voucher{{ID: 101, Code: "a", SKU: "of another"}, {ID: 102, Code: "b", SKU: "mine"}}, left)
}

// Nobody else's row comes into the reach of a write after it was asked.
func TestS46_RowThatComesBeforeTheUpdate(t *testing.T) {
	t.Parallel()
	for _, e := range []engine{onSQLite, onMariaDB} {
		for name, skip := range map[string]bool{"transaction": false, "SkipDefaultTransaction": true} {
			t.Run(e.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				config := quiet()
				config.SkipDefaultTransaction = skip
				d := newDatabase(t, e, config)
				c := d.cell(1, fresh)
				require.NoError(t, c.bare.Exec("UPDATE items SET sku = 'of another', stock = 0 WHERE id = 3").Error)
				other := d.raised("of another", heldToken)
				comes := func(*gorm.DB) {
					ctx, cancel := context.WithTimeout(other, 200*time.Millisecond)
					defer cancel()
					require.Error(t, d.db.Session(&gorm.Session{NewDB: true}).WithContext(ctx).Exec("UPDATE items SET stock = 1 WHERE id = 3").Error, "it waits for us")
				}
				require.NoError(t, d.db.Callback().Update().After("gormguard:resource").Before("gorm:update").Register("comes", comes))
				tx := c.tx.Model(&Item{}).Where("stock > 0").Update("note", "x")
				require.NoError(t, tx.Error)
				require.EqualValues(t, 2, tx.RowsAffected)
				require.Eventually(t, func() bool { return d.sql.Stats().InUse == 0 }, 5*time.Second, time.Millisecond, "no transaction is left")
				require.NoError(t, d.db.Callback().Update().Remove("comes"))
				require.ErrorIs(t, c.tx.Model(&Item{}).Where("id > 0").Update("note", "y").Error, guard.ErrNoFence)
				require.Eventually(t, func() bool { return d.sql.Stats().InUse == 0 }, 5*time.Second, time.Millisecond, "no transaction is left")
			})
		}
	}
}

// A question that fails is seen by the plugin: it needs no savepoint in MySQL, which
// would be two more round trips.
func TestQuestionIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil)
	c := d.cell(1, fresh)
	d.sql.SetMaxOpenConns(1)
	commands := func() (n int) {
		require.NoError(t, d.sql.QueryRow("SELECT SUM(variable_value) FROM information_schema.session_status WHERE variable_name IN ('Com_select', 'Com_savepoint', 'Com_release_savepoint')").Scan(&n))
		return n
	}
	item := c.loaded(1)
	for range 2 {
		item.Stock++ // else MySQL tells of no row, and GORM goes on with an upsert
		before := commands()
		require.NoError(t, c.tx.Save(item).Error)
		require.Equal(t, 3, commands()-before, "to enter, to ask, and this")
	}
}
