package gormguard_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

var updateAll = clause.OnConflict{UpdateAll: true}

// Rows that are there already are asked with locks, and new ones without: a lock on a
// gap of MySQL is in the way of everybody's inserts.
func TestUpsertsOfNewRowsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	writes := map[string]func(tx *gorm.DB, old, fresh *Item) error{
		"Save":      func(tx *gorm.DB, _, fresh *Item) error { return tx.Save(fresh).Error },
		"UpdateAll": func(tx *gorm.DB, _, fresh *Item) error { return tx.Clauses(updateAll).Create(fresh).Error },
		"slice":     func(tx *gorm.DB, old, fresh *Item) error { return tx.Save([]*Item{old, fresh}).Error },
	}
	for _, e := range engines {
		for mode, m := range modes {
			t.Run(e.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, e, nil, gormguard.WithMode(m))
				var ids, fresh atomic.Int64 // all new rows come into one gap
				fresh.Store(1_000_000)
				for name, write := range writes {
					var wg sync.WaitGroup
					for range 4 {
						old := &Item{ID: ids.Add(1000)}
						old.SKU = fmt.Sprint("sku-", old.ID)
						require.NoError(t, d.bare.Create(old).Error)
						tx := d.db.WithContext(d.raised(old.SKU, heldToken))
						wg.Go(func() {
							for range 15 {
								assert.NoError(t, write(tx, old, &Item{ID: fresh.Add(1), SKU: old.SKU}), name)
							}
						})
					}
					wg.Wait()
				}
			})
		}
	}
}

// What a plain read of MySQL has not seen is not written unasked.
func TestS46_RowThatComesBeforeTheUpsert(t *testing.T) {
	t.Parallel()
	for name, skip := range map[string]bool{"transaction": false, "SkipDefaultTransaction": true} {
		for mode, m := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				config := quiet()
				config.SkipDefaultTransaction = skip
				d := newDatabase(t, onMariaDB, config, gormguard.WithMode(m))
				c := d.cell(1, fresh)
				var comes []Item
				require.NoError(t, d.db.Callback().Create().After("gormguard:resource").Before("gorm:create").Register("comes", func(*gorm.DB) {
					if len(comes) > 0 {
						require.NoError(t, d.bare.Create(comes).Error)
						comes = nil
					}
				}))
				comes = []Item{{ID: 70, SKU: "of another", Note: "theirs"}}
				require.ErrorIs(t, c.tx.Clauses(updateAll).Create([]Item{{ID: 69, SKU: c.sku}, {ID: 70, SKU: c.sku}}).Error, guard.ErrNoFence)
				var theirs []Item
				require.NoError(t, d.bare.Find(&theirs, "id >= 69").Error)
				require.Equal(t, []Item{{ID: 70, SKU: "of another", Note: "theirs"}}, theirs)

				comes = []Item{{ID: 71, SKU: c.sku}}
				require.NoError(t, c.tx.Clauses(updateAll).Create([]Item{{ID: 3, SKU: c.sku}, {ID: 71, SKU: c.sku, Note: "x"}, {ID: 72, SKU: c.sku}}).Error)
				require.NoError(t, c.tx.Clauses(updateAll).Create([]Item{{ID: 73, SKU: c.sku}, {ID: 73, SKU: c.sku, Note: "x"}}).Error)
				require.NoError(t, d.bare.Find(&theirs, "id > 70 AND note = 'x'").Error)
				require.Len(t, theirs, 2)
			})
		}
	}
}

// A Ticket is found by a key of which it does not say all.
type Ticket struct {
	ID     int64  `gorm:"primaryKey"`
	Region string `gorm:"size:20;default:eu;uniqueIndex:region_code"`
	Code   string `gorm:"size:20;uniqueIndex:region_code"`
	Day    string `gorm:"size:20;default:(lower('MON'));uniqueIndex:day_seat"`
	Seat   string `gorm:"size:20;uniqueIndex:day_seat"`
	SKU    string
	Note   string
	Token  int64 `gorm:"column:fence_token;fence;not null;default:0"`
}

func (t Ticket) FenceResource() string { return t.SKU }

func TestS46_UpsertByAKeyWithADefault(t *testing.T) {
	t.Parallel()
	by := func(columns ...string) clause.OnConflict {
		on := clause.OnConflict{DoUpdates: clause.AssignmentColumns([]string{"sku", "note"})}
		for _, name := range columns {
			on.Columns = append(on.Columns, clause.Column{Name: name})
		}
		return on
	}
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabaseOf(t, e, quiet(), gormguard.ModeFence, &Ticket{})
			theirs := Ticket{ID: 101, Region: "eu", Code: "a", Day: "mon", Seat: "1", SKU: "of another"}
			require.NoError(t, d.bare.Create(&theirs).Error)
			tx := d.db.WithContext(d.raised("mine", heldToken))
			require.ErrorIs(t, tx.Clauses(by("region", "code")).Create(&Ticket{Code: "a", Seat: "2", SKU: "mine"}).Error, guard.ErrNoFence)
			require.ErrorIs(t, tx.Clauses(by("day", "seat")).Create(&Ticket{Code: "b", Seat: "1", SKU: "mine"}).Error, guard.ErrNoFence)
			require.NoError(t, tx.Clauses(by("day", "seat")).Create(&Ticket{Code: "c", Seat: "3", SKU: "mine"}).Error)
			var left Ticket
			require.NoError(t, d.bare.First(&left, 101).Error)
			require.Equal(t, theirs, left)
		})
	}
}

// The question is no deeper and no larger than the statement.
func TestManyRowsAreAsked(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil)
			tx := d.db.WithContext(d.raised("mine", heldToken))
			rows := make([]*Item, 2100)
			keys := make([]*Item, len(rows))
			for i := range rows {
				rows[i] = &Item{ID: int64(10_000 + i), SKU: "mine"}
				keys[i] = &Item{ID: rows[i].ID}
			}
			for range 2 { // new, and stored
				require.NoError(t, tx.Save(rows).Error)
			}
			require.NoError(t, tx.Model(keys).Update("note", "x").Error)
			require.NoError(t, d.bare.Exec("UPDATE items SET sku = 'of another' WHERE id = 12099").Error)
			require.ErrorIs(t, tx.Save(rows).Error, guard.ErrNoFence)
			require.ErrorIs(t, tx.Model(keys).Update("note", "y").Error, guard.ErrNoFence)
			tx = tx.Delete(keys[:2099])
			require.NoError(t, tx.Error)
			require.EqualValues(t, 2099, tx.RowsAffected)
		})
	}
}

// The keys of what was asked are no values more than MySQL takes.
func TestUpsertOfAsManyValuesAsMySQLTakes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, onMariaDB, nil)
	rows := make([]Item, 10_900) // of six columns
	for i := range rows {
		rows[i] = Item{ID: int64(10_000 + i), SKU: "mine"}
	}
	tx := d.db.WithContext(d.raised("mine", heldToken))
	for range 2 { // new, and stored
		require.NoError(t, tx.Save(rows).Error)
	}
	require.NoError(t, d.bare.Exec("UPDATE items SET sku = 'of another' WHERE id = 20000").Error)
	require.ErrorIs(t, tx.Save(rows).Error, guard.ErrNoFence)
}
