package gormguard_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

// eachMode runs a test on SQLite once per mode, under a fence in force.
func eachMode(t *testing.T, test func(t *testing.T, c *cell, mode string)) {
	t.Parallel()
	for mode, m := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, onSQLite, nil, gormguard.WithMode(m))
			test(t, d.cell(1, fresh), mode)
		})
	}
}

func TestMissingWhereStaysAnError(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cell, _ string) {
		before := c.rows()
		for name, err := range map[string]error{
			"update":       c.tx.Model(&Boss{}).Update("name", "x").Error,
			"update items": c.tx.Model(&Item{}).Update("note", "x").Error,
			"delete":       c.tx.Delete(&Boss{}).Error,
			"delete items": c.tx.Delete(&Item{}).Error,
			"soft delete":  c.tx.Delete(&Doc{}).Error,
			"set":          c.tx.Model(&Boss{}).Clauses(clause.Set{{Column: clause.Column{Name: "name"}, Value: "x"}}).Updates(map[string]any{}).Error,
			"save bare":    c.tx.Save(&Bare{Name: "x"}).Error,
		} {
			require.ErrorIs(t, err, gorm.ErrMissingWhereClause, name)
		}
		require.Equal(t, before, c.rows())
	})
}

func TestCallersValuesAreNotChanged(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cell, _ string) {
		m := map[string]any{"note": "x"}
		require.NoError(t, c.tx.Model(c.item(1)).Updates(m).Error)
		require.Equal(t, map[string]any{"note": "x"}, m)

		i := c.loaded(2)
		i.Note = "x"
		copied := *i
		require.NoError(t, c.tx.Updates(i).Error)
		require.Equal(t, copied, *i)
		require.NoError(t, c.tx.Save(i).Error)
		require.Equal(t, copied, *i)

		created := Item{ID: 20, SKU: c.sku, Note: "x"}
		copied = created
		require.NoError(t, c.tx.Create(&created).Error)
		require.Equal(t, copied, created)

		conflict := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"note"})}
		require.NoError(t, c.tx.Clauses(conflict).Create(&created).Error)
		require.Len(t, conflict.DoUpdates, 1)
	})
}

func TestRowsAffectedStaysRight(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cell, _ string) {
		for name, tt := range map[string]struct {
			tx   *gorm.DB
			want int64
		}{
			"one":     {c.tx.Model(c.item(1)).Update("note", "x"), 1},
			"same":    {c.tx.Model(c.item(1)).Update("note", "x"), 1},
			"three":   {c.tx.Model(&Item{}).Where("id <= ?", 3).Update("note", "x"), 3},
			"missing": {c.tx.Model(&Boss{ID: 99}).Update("name", "x"), 0},
			"batch":   {c.tx.Create([]Item{{ID: 30, SKU: c.sku}, {ID: 31, SKU: c.sku}}), 2},
			"delete":  {c.tx.Delete(&Item{}, []int{30, 31}), 2},
			"gone":    {c.tx.Delete(&Boss{}, 99), 0},
			"nothing": {c.tx.Model(&Boss{ID: 1}).Updates(map[string]any{}), 0},
			"exec":    {gormguard.Unguarded(c.tx, "test").Exec("UPDATE pairs SET value = 7"), 2},
		} {
			require.NoError(t, tt.tx.Error, name)
			require.Equal(t, tt.want, tt.tx.RowsAffected, name)
		}
	})
}

// ChangeSpy notes what Changed says in the hook.
type ChangeSpy struct {
	ID    int64
	Value int
	Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	saw   []bool
}

func (ChangeSpy) TableName() string { return "bosses" }

func (s *ChangeSpy) BeforeUpdate(tx *gorm.DB) error {
	s.saw = append(s.saw, tx.Statement.Changed("Token"), tx.Statement.Changed())
	return errAbort
}

func TestTokenIsNotAChange(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cell, _ string) {
		spy := &ChangeSpy{ID: 1, Value: 1}
		require.ErrorIs(t, c.tx.Model(spy).Updates(map[string]any{"value": 1}).Error, errAbort)
		require.Equal(t, []bool{false, false}, spy.saw)
	})
}

// A batch in which one row is newer writes none.
func TestBatchWithOneStaleRowWritesNone(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil, gormguard.WithMode(gormguard.ModeRow))
			c := d.cell(1, fresh)
			require.NoError(t, c.bare.Exec("UPDATE items SET fence_token = 9 WHERE id = 2").Error)
			before := c.rows()
			x := func(id int64) Item { return Item{ID: id, SKU: c.sku, Note: "x"} }
			for name, run := range map[string]func(tx *gorm.DB) *gorm.DB{
				"where": func(tx *gorm.DB) *gorm.DB { return tx.Model(&Item{}).Where("stock > 0").Update("note", "x") },
				"models": func(tx *gorm.DB) *gorm.DB {
					return tx.Model([]*Item{c.item(1), c.item(2), c.item(3)}).Update("note", "x")
				},
				"save": func(tx *gorm.DB) *gorm.DB { return tx.Save([]Item{x(1), x(2), x(40)}) },
				"upsert": func(tx *gorm.DB) *gorm.DB {
					return tx.Clauses(clause.OnConflict{UpdateAll: true}).Create([]Item{x(1), x(2), x(41)})
				},
				"delete": func(tx *gorm.DB) *gorm.DB { return tx.Delete(&Item{}, []int{1, 2, 3}) },
			} {
				err := run(c.tx).Error
				held, ok := errors.AsType[*guard.StaleError](err)
				require.True(t, ok, "%s: %v", name, err)
				require.EqualValues(t, newerToken, held.Current.Token, name)
				require.EqualValues(t, heldToken, held.Held.Token, name)
				require.Equal(t, before, c.rows(), name)

				if e.name != "postgres" { // there the error ends the transaction, like every error
					require.NoError(t, c.tx.Transaction(func(tx *gorm.DB) error {
						require.ErrorIs(t, run(tx).Error, guard.ErrStale, name)
						return nil
					}))
					require.Equal(t, before, c.rows(), "in a transaction of the caller: %s", name)
				}
			}
		})
	}
}

// A newer row that is out of reach of the conditions is not a missing one.
func TestMissingIsToldFromStale(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil, gormguard.WithMode(gormguard.ModeRow))
			c := d.cell(1, fresh)
			require.NoError(t, c.bare.Exec("UPDATE docs SET fence_token = 9, deleted_at = '2026-01-01' WHERE id = 1").Error)
			require.NoError(t, c.bare.Exec("UPDATE pairs SET fence_token = 9, value = 9 WHERE a = 1 AND b = 1").Error)
			require.ErrorIs(t, c.tx.Model(&Doc{ID: 1, SKU: c.sku}).Update("body", "x").Error, guard.ErrStale)
			require.ErrorIs(t, c.tx.Save(&Doc{ID: 1, SKU: c.sku, Body: "x"}).Error, guard.ErrStale)
			require.ErrorIs(t, c.tx.Model(&Pair{A: 1, B: 1}).Where("value = ?", 1).Update("value", 2).Error, guard.ErrStale)
			require.ErrorIs(t, c.tx.Model(&Pair{}).Where("a = ?", 1).Where("b = ?", 1).Where("value = 1").Delete(&Pair{}).Error, guard.ErrStale)
			tx := c.tx.Model(&Pair{A: 1, B: 2}).Where("value = ?", 77).Update("value", 2)
			require.NoError(t, tx.Error)
			require.Zero(t, tx.RowsAffected)
			tx = c.tx.Model(&Pair{A: 5, B: 5}).Update("value", 2)
			require.NoError(t, tx.Error)
			require.Zero(t, tx.RowsAffected)
			// On MySQL a row that is changed to what it is counts as none.
			require.NoError(t, c.tx.Model(&Pair{A: 1, B: 2}).Update("value", 2).Error)
			require.NoError(t, c.tx.Model(&Pair{A: 1, B: 2}).Update("value", 2).Error)
		})
	}
}

func TestRefusalIsFoundWhateverIsAddedToIt(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cell, _ string) {
		require.NoError(t, c.db.Callback().Update().After("gorm:update").Before("gorm:after_update").Register("other", func(tx *gorm.DB) {
			_ = tx.AddError(errAbort)
		}))
		late := c.cell(2, stale)
		err := late.tx.Model(late.item(1)).Update("note", "x").Error
		require.ErrorIs(t, err, errAbort)
		require.ErrorIs(t, err, guard.ErrStale)
	})
}

func TestSubqueryErrorOfTheCallerIsNotStale(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil, gormguard.WithMode(gormguard.ModeRow))
	c := d.cell(1, fresh)
	two := gorm.Expr("(SELECT 1 UNION ALL SELECT 2)")
	for name, err := range map[string]error{
		"update": c.tx.Model(c.item(1)).Update("stock", two).Error,
		"create": c.tx.Model(&Item{}).Create(map[string]any{"id": 80, "sku": c.sku, "stock": two}).Error,
		"upsert": c.tx.Clauses(doUpdates("stock", two)).Create(c.item(1)).Error,
	} {
		require.ErrorContains(t, err, "1242", name)
		require.NotErrorIs(t, err, guard.ErrStale, name)
	}
}

// The number of an error counts: its text may quote a key.
func TestDuplicateKeyIsNotStale(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil, gormguard.WithMode(gormguard.ModeRow))
	c := d.cell(1, fresh)
	require.NoError(t, c.tx.Create(&Boss{ID: 1242}).Error)
	err := c.tx.Create(&Boss{ID: 1242}).Error
	require.ErrorContains(t, err, "1062")
	require.NotErrorIs(t, err, guard.ErrStale)
}

// ModeRow compares the rows of one table, and leaves none out.
func TestStatementsThatModeRowCannotCompareAreRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil, gormguard.WithMode(gormguard.ModeRow))
	c := d.cell(1, fresh)
	require.NoError(t, c.bare.Exec("UPDATE wides SET m_tok = 99").Error) // of a newer holder
	before := c.rows()
	both := map[string]any{"items.note": "x", "wides.value": 9}
	for name, tx := range map[string]*gorm.DB{
		"JOIN":         c.tx.Table("items JOIN wides ON wides.id = items.id").Where("items.id = 1").Updates(both),
		"comma":        c.tx.Table("items, wides").Where("items.id = 1").Updates(both),
		"STRAIGHT":     c.tx.Table("items STRAIGHT_JOIN wides").Where("items.id = 1").Updates(both),
		"raw table":    c.tx.Table("items").Clauses(clause.Update{Table: clause.Table{Name: "items JOIN wides", Raw: true}}).Where("items.id = 1").Updates(both),
		"clause From":  c.tx.Clauses(clause.From{Tables: []clause.Table{{Name: "items, wides", Raw: true}}}).Where("items.id = 1").Delete(&Boss{}),
		"DELETE hint":  c.tx.Clauses(clause.Delete{Modifier: "IGNORE"}).Where("id = 1").Delete(&Boss{}),
		"DELETE joins": c.tx.Clauses(clause.Delete{Modifier: "wides"}).Table("items JOIN wides").Where("1 = 1").Delete(&Boss{}),
	} {
		require.ErrorIs(t, tx.Error, gormguard.ErrRaw, name)
		require.Equal(t, before, c.rows(), name)
	}
}

// Called counts how often its hook runs.
type Called struct {
	ID    int64
	Name  string
	Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	calls int
}

func (Called) TableName() string { return "bosses" }

func (h *Called) BeforeUpdate(*gorm.DB) error { h.calls++; return nil }

func TestHooksDoNotRunForAStaleHolder(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onSQLite, nil)
	for i, kind := range []held{fresh, stale, none} {
		c := d.cell(i, kind)
		h := &Called{ID: 1}
		err := c.tx.Model(h).Update("name", "x").Error
		require.Equal(t, kind == fresh, err == nil)
		require.Equal(t, kind == fresh, h.calls == 1, "%s: %d calls", kind, h.calls)
	}
}
