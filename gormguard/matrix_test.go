package gormguard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

// A path is one way to write a guarded table with GORM.
type path struct {
	name string
	run  func(c *cell) error

	raw     bool // SQL that GORM did not build: refused in ModeRow
	blind   bool // ModeRow has nothing to compare with
	any     bool // no model says which fence the rows need: that of another resource will do
	nothing bool // it writes nothing, if all is well
	dry     bool // it sends nothing
	direct  bool // it goes past GORM's chains; a cache of prepared statements refuses it
	tears   bool // GORM uses several transactions, and ModeRow finds out in the second
	only    string
	limited map[string]bool // engines in whose ModeRow it is refused
}

// A cell is one path in one mode with one kind of fence.
type cell struct {
	*database
	tx  *gorm.DB // guarded, with the context
	ctx context.Context
	sku string
}

type held string

const (
	fresh   held = "fresh"   // the fence in force
	stale   held = "stale"   // a later one was raised, and has written every row
	none    held = "none"    // no fence
	foreign held = "foreign" // only the fence of another resource
)

const (
	oldToken   = 5
	heldToken  = 7
	newerToken = 9
)

var modes = map[string]gormguard.Mode{"fence": gormguard.ModeFence, "row": gormguard.ModeRow, "both": gormguard.ModeBoth}

// guardedTables and the column that stamps their rows.
var guardedTables = map[string]string{
	"items": "fence_token", "docs": "fence_token", "owners": "fence_token", "badges": "fence_token", "bosses": "fence_token", "item_tags": "fence_token",
	"pairs": "fence_token", "bares": "fence_token", "wides": "m_tok", "hookeds": "fence_token", "nameds": "fence_token",
}

// seed fills the tables, every row stamped with token.
func (c *cell) seed(token int64) {
	require.NoError(c, c.bare.Transaction(func(db *gorm.DB) error {
		for table := range guardedTables {
			if err := db.Exec("DELETE FROM " + table).Error; err != nil {
				return err
			}
		}
		one := int64(1)
		for _, rows := range []any{
			&[]Boss{{ID: 1, Name: "boss", Token: token}, {ID: 2, Name: "other", Token: token}},
			&[]Owner{{ID: 1, SKU: c.sku, Name: "owner", BossID: &one, Token: token}},
			&[]Badge{{ID: 1, Text: "badge", OwnerID: &one, Token: token}, {ID: 2, Text: "free", Token: token}},
			&[]Item{{ID: 1, SKU: c.sku, Stock: 1, Note: "one", OwnerID: &one, Token: token}, {ID: 2, SKU: c.sku, Stock: 2, Note: "two", OwnerID: &one, Token: token}, {ID: 3, SKU: c.sku, Stock: 3, Note: "three", Token: token}},
			&[]Doc{{ID: 1, SKU: c.sku, Body: "one", Token: token}, {ID: 2, SKU: c.sku, Body: "two", Token: token}},
			&[]ItemTag{{ItemID: 1, TagID: 1, Token: token}},
			&[]Pair{{A: 1, B: 1, Value: 1, Token: token}, {A: 1, B: 2, Value: 2, Token: token}},
			&[]Bare{{Name: "bare", Value: 1, Token: token}},
			&[]Wide{{ID: 1, Value: 1, Mark: Mark{token}}},
			&[]Hooked{{ID: 1, Value: 1, Token: token}},
			&[]Named{{ID: 1, Value: 1, FenceToken: token}},
		} {
			if err := db.Omit("Items", "Badge", "Boss", "Tags").Create(rows).Error; err != nil {
				return err
			}
		}
		return nil
	}))
}

// rows returns the rows of the guarded tables as text, with their stamps.
func (c *cell) rows() map[string]int64 {
	all := map[string]int64{}
	for table, column := range guardedTables {
		var rows []map[string]any
		require.NoError(c, c.bare.Table(table).Find(&rows).Error)
		for i, row := range rows {
			text := table
			for _, k := range slices.Sorted(maps.Keys(row)) {
				text += fmt.Sprintf(" %s=%v", k, row[k])
			}
			if _, twice := all[text]; twice {
				text += fmt.Sprint(" #", i)
			}
			var token int64
			_, err := fmt.Sscan(fmt.Sprint(row[column]), &token)
			require.NoError(c, err)
			all[text] = token
		}
	}
	return all
}

func (d *database) cell(n int, kind held) *cell {
	c := &cell{database: d, sku: fmt.Sprintf("sku-%d", n), ctx: d.Context()}
	d.raised("other:"+c.sku, 1)
	switch kind {
	case fresh, none:
		c.seed(oldToken)
	case foreign, stale:
		c.seed(newerToken)
	}
	ctx := d.raised(c.sku, heldToken)
	switch kind {
	case fresh:
		c.ctx = ctx
	case stale:
		c.ctx = ctx
		d.raised(c.sku, newerToken)
	case foreign:
		c.seed(oldToken)
		c.ctx = d.raised("other:"+c.sku, heldToken)
	}
	c.tx = d.db.WithContext(c.ctx)
	return c
}

// want returns the error that a path must meet, and whether it may write.
func (p path) want(engine, mode string, kind held, prepares bool) (target error, writes bool) {
	row := mode != "fence"
	if p.direct && prepares && kind != none {
		return gormguard.ErrRaw, false
	}
	switch {
	case kind == none:
		return guard.ErrNoFence, false
	case row && (p.raw || p.limited[engine]):
		if kind == stale && mode == "both" || kind == foreign && !p.any {
			return nil, false // refused for either reason
		}
		return gormguard.ErrRaw, false
	case kind == foreign && !p.any:
		return guard.ErrNoFence, false
	case kind == stale && !(mode == "row" && p.blind):
		return guard.ErrStale, false
	}
	return nil, true
}

func TestEveryWritePath(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			for mode := range modes {
				t.Run(mode, func(t *testing.T) { checkPaths(t, e, mode, quiet(), fresh, stale, none, foreign) })
			}
		})
	}
}

// The same paths where GORM itself is set up in another way.
func TestEveryWritePathUnderOtherSettings(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*gorm.Config){
		"SkipDefaultTransaction": func(c *gorm.Config) { c.SkipDefaultTransaction = true },
		"PrepareStmt":            func(c *gorm.Config) { c.PrepareStmt = true },
		"TranslateError":         func(c *gorm.Config) { c.TranslateError = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for mode := range modes {
				t.Run(mode, func(t *testing.T) {
					config := quiet()
					set(config)
					checkPaths(t, onSQLite, mode, config, fresh, stale)
				})
			}
		})
	}
}

func checkPaths(t *testing.T, e engine, mode string, config *gorm.Config, kinds ...held) {
	d := newDatabase(t, e, config, gormguard.WithMode(modes[mode]))
	ran := 0
	for i, p := range paths {
		if p.only != "" && p.only != e.name {
			continue
		}
		for j, kind := range kinds {
			p.check(t, d, mode, kind, 10*i+j)
		}
		ran++
	}
	require.Equal(t, pathCount[e.name], ran, "paths on %s", e.name)
}

func (p path) check(t *testing.T, d *database, mode string, kind held, n int) {
	t.Run(strings.ReplaceAll(p.name, " ", "_")+"/"+string(kind), func(t *testing.T) {
		inner := *d
		inner.TB = t
		c := inner.cell(n, kind)
		before := c.rows()
		err := p.run(c)
		after := c.rows()
		target, writes := p.want(d.engine.name, mode, kind, d.db.PrepareStmt)
		switch {
		case p.dry:
			require.NoError(t, err)
			require.Equal(t, before, after)
			return
		case p.tears && mode == "row" && kind == stale:
			require.ErrorIs(t, err, target)
			return
		case p.nothing && writes, p.nothing && kind != none && target != nil:
			require.Equal(t, before, after)
			return
		case !writes && target == nil:
			require.Error(t, err)
		case !writes:
			require.ErrorIs(t, err, target)
		default:
			require.NoError(t, err)
		}
		if !writes {
			require.Equal(t, before, after, "something was written, though %v", err)
			return
		}
		require.NotEqual(t, before, after, "nothing was written")
		if mode == "fence" {
			return
		}
		for row, token := range after {
			if _, old := before[row]; !old {
				require.EqualValues(t, heldToken, token, "not stamped: %s", row)
			}
		}
	})
}

var errAbort = errors.New("the test's own error")
