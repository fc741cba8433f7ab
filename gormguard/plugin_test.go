package gormguard_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	sqlite "github.com/libtnb/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
)

type (
	Nullable struct {
		ID    int64
		Token *int64 `gorm:"fence"`
	}
	Texted struct {
		ID    int64
		Token string `gorm:"fence"`
	}
	Serialized struct {
		ID    int64
		Token int64 `gorm:"fence;serializer:json"`
	}
	Twice struct {
		ID int64
		A  int64 `gorm:"fence"`
		B  int64 `gorm:"fence"`
	}
)

func TestUnsuitableModelsAreRefused(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	for want, model := range map[string]any{
		"may be NULL": &Nullable{}, "is a string": &Texted{}, "serializer": &Serialized{}, "two fields": &Twice{}, "neither a field": &Tag{},
	} {
		db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
		require.NoError(t, err)
		for _, mode := range modes {
			require.ErrorContains(t, db.Use(gormguard.New(gormguard.WithModels(model), gormguard.WithMode(mode))), want)
		}
	}
}

func TestUnsuitableColumnsAreRefusedWithTheRemedy(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newBare(t, e)
			for column, want := range map[string]string{"": "is missing", ", fence_token bigint": "may be NULL", ", fence_token varchar(20) NOT NULL": "not a 64-bit integer"} {
				require.NoError(t, d.bare.Exec("DROP TABLE IF EXISTS odd").Error)
				require.NoError(t, d.bare.Exec("CREATE TABLE odd (id bigint NOT NULL"+column+")").Error)
				db, err := gorm.Open(dialector(e, d.sql), quiet())
				require.NoError(t, err)
				err = db.Use(gormguard.New(gormguard.WithTables("odd"), gormguard.WithMode(gormguard.ModeRow)))
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, "ALTER TABLE")
				require.ErrorContains(t, err, "fence_token")
				require.LessOrEqual(t, strings.Count(err.Error(), "\n"), 2, "one or two statements: %v", err)
				require.NoError(t, db.Use(gormguard.New(gormguard.WithTables("odd"))), "ModeFence needs no column")
			}
			require.NoError(t, d.bare.Exec("DROP TABLE odd").Error)
			require.NoError(t, d.bare.Exec("CREATE TABLE odd (id bigint NOT NULL)").Error)
			require.NoError(t, d.bare.Exec("ALTER TABLE odd ADD COLUMN fence_token BIGINT NOT NULL DEFAULT 0").Error)
			db, err := gorm.Open(dialector(e, d.sql), quiet())
			require.NoError(t, err)
			require.NoError(t, db.Use(gormguard.New(gormguard.WithTables("odd"), gormguard.WithMode(gormguard.ModeBoth))))
		})
	}
}

func TestOddTablesAreReadOrRefused(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	for _, name := range []string{"", " ", "a b", "a.", ".a", `"a`, "a; DROP TABLE b", "a--", "a/**/", "a..b", "'a'", "a\x00b", "(a)"} {
		db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
		require.NoError(t, err)
		require.ErrorContains(t, db.Use(gormguard.New(gormguard.WithTables(name))), "gormguard: table", "%q", name)
	}
	for _, name := range []string{"bosses", "BOSSES", `"bosses"`, "`bosses`", "[bosses]", "main.bosses", `"main"."bosses"`} {
		db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
		require.NoError(t, err)
		require.NoError(t, db.Use(gormguard.New(gormguard.WithTables(name))), name)
		for _, sql := range []string{"UPDATE bosses SET name = 'x'", `update "Bosses" set name = 'x'`, "DELETE FROM main.bosses"} {
			require.ErrorIs(t, db.Exec(sql).Error, guard.ErrNoFence, "%s: %s", name, sql)
		}
	}
}

func TestATableThatIsNotThereIsNoGuardedTable(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newBare(t, e)
			for _, mode := range modes {
				db, err := gorm.Open(dialector(e, d.sql), quiet())
				require.NoError(t, err)
				require.ErrorContains(t, db.Use(gormguard.New(gormguard.WithTables("bosses", "bossse"), gormguard.WithMode(mode))), "bossse")
			}
		})
	}
}

// What is wrong is the database then, not the name of the table.
func TestUseOfADatabaseThatDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	open := func() *gorm.DB {
		db, err := gorm.Open(onSQLite.open(t), quiet())
		require.NoError(t, err)
		return db
	}
	closed := open()
	pool, err := closed.DB()
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	for name, db := range map[string]*gorm.DB{"closed": closed, "dead context": open().WithContext(dead)} {
		err := db.Use(gormguard.New(gormguard.WithTables("bosses")))
		require.ErrorContains(t, err, "the database does not answer", name)
		require.NotContains(t, err.Error(), "misspelt", name)
	}
}

type otherDialect struct{ gorm.Dialector }

func (otherDialect) Name() string { return "clickhouse" }

func TestUseIsRefused(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	open := func() *gorm.DB {
		db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
		require.NoError(t, err)
		return db
	}
	db, err := gorm.Open(otherDialect{dialector(onSQLite, d.sql)}, quiet())
	require.NoError(t, err)
	require.ErrorContains(t, db.Use(gormguard.New()), "unknown dialect")

	p := gormguard.New()
	db = open()
	require.NoError(t, db.Use(p))
	require.ErrorIs(t, db.Use(p), gorm.ErrRegistered)
	require.ErrorIs(t, db.Use(gormguard.New()), gorm.ErrRegistered)
	require.ErrorContains(t, open().Use(p), "another database")

	db = open()
	require.NoError(t, db.Callback().Update().Replace("gorm:update", func(*gorm.DB) {}))
	require.ErrorContains(t, db.Use(gormguard.New()), "replaced or removed the callback gorm:update")
	db = open()
	require.NoError(t, db.Callback().Raw().Remove("gorm:raw"))
	require.ErrorContains(t, db.Use(gormguard.New()), "gorm:raw")

	require.ErrorContains(t, open().Use(gormguard.New(gormguard.WithMode(9))), "WithMode(9): there is no such mode")
	require.ErrorContains(t, open().Use(gormguard.New(gormguard.WithColumn(""))), `WithColumn(""): the version column needs a name`)
	require.EqualError(t, open().Use(gormguard.New(nil)), "gormguard: an option is nil")
	require.ErrorContains(t, gormguard.New().Raise(t.Context(), fence("x", 1)), "db.Use")
}

func TestUnguardedTellsTheObserver(t *testing.T) {
	eachMode(t, func(t *testing.T, c *cell, mode string) {
		var events []guard.Event
		db, err := gorm.Open(dialector(onSQLite, c.sql), quiet())
		require.NoError(t, err)
		require.NoError(t, db.Use(gormguard.New(gormguard.WithTables("bosses"), gormguard.WithMode(modes[mode]), gormguard.WithObserver(func(e guard.Event) { events = append(events, e) }))))
		require.ErrorIs(t, db.Exec("UPDATE bosses SET name = 'x'").Error, guard.ErrNoFence)
		require.NoError(t, gormguard.Unguarded(db, "repair 17").Exec("UPDATE bosses SET name = 'x'").Error)
		require.NoError(t, gormguard.Unguarded(db, "repair 18").Model(&Boss{ID: 1}).Update("name", "y").Error)
		require.NoError(t, gormguard.Unguarded(db, "migration").AutoMigrate(&Boss{}))
		require.ErrorContains(t, gormguard.Unguarded(db, "").Exec("UPDATE bosses SET name = 'x'").Error, "the reason is empty")
		require.Len(t, events, 3)
		require.Equal(t, guard.EventRefused, events[0].Kind)
		require.Equal(t, guard.EventUnguarded, events[1].Kind)
		require.Equal(t, guard.EventUnguarded, events[2].Kind)
		require.Equal(t, &gormguard.UnguardedError{Table: "bosses", Reason: "repair 17"}, events[1].Err)
		require.Equal(t, &gormguard.UnguardedError{Table: "bosses", Reason: "repair 18"}, events[2].Err)
	})
}

// AutoMigrate of a table that is up to date, and of new columns and indexes, is no
// write.
func TestMigrationsNeedNoFence(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, e, nil)
			require.NoError(t, d.db.AutoMigrate(&Boss{}))
			type Boss struct {
				ID    int64
				Name  string `gorm:"index;size:40"`
				Extra int
				Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
			}
			require.NoError(t, d.db.Migrator().AddColumn(&Boss{}, "Extra"))
			require.ErrorIs(t, d.db.Migrator().DropTable("bosses"), guard.ErrNoFence)
			require.ErrorIs(t, d.db.Migrator().DropColumn(&Boss{}, "Extra"), guard.ErrNoFence)
			require.True(t, d.db.Migrator().HasTable("bosses"))
		})
	}
}

func TestResolverUsesGuardedPools(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, mode string
		guardFirst bool
	}{
		{"guard first", "fence", true},
		{"resolver first", "fence", false},
		{"guard first, row mode", "row", true},
		{"guard first, both modes", "both", true},
	} {
		guardFirst := tt.guardFirst
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newBare(t, onSQLite)
			db, err := gorm.Open(dialector(onSQLite, d.sql), quiet())
			require.NoError(t, err)
			d.db, d.plugin = db, gormguard.New(gormguard.WithModels(models[:len(models)-1]...), gormguard.WithMode(modes[tt.mode]))
			replica := sqlite.Open("file:" + filepath.Join(t.TempDir(), "replica.db"))
			resolver := dbresolver.Register(dbresolver.Config{Sources: []gorm.Dialector{dialector(onSQLite, d.sql)}, Replicas: []gorm.Dialector{replica}})
			if guardFirst {
				require.NoError(t, db.Use(d.plugin))
			}
			require.NoError(t, db.Use(resolver))
			if !guardFirst {
				require.NoError(t, db.Use(d.plugin))
			}
			for i, kind := range []held{fresh, stale, none} {
				c := d.cell(i, kind)
				for j, run := range []func() error{
					func() error { return c.tx.Model(c.item(1)).Update("note", "x").Error },
					func() error { return c.tx.Exec("UPDATE items SET note = 'y' WHERE id = 2").Error },
					func() error {
						return c.tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(3)).Update("note", "x").Error })
					},
					func() error {
						tx := c.tx.Clauses(dbresolver.Write).Begin()
						defer tx.Rollback()
						if err := tx.Model(c.item(1)).Update("note", "z").Error; err != nil {
							return err
						}
						return tx.Commit().Error
					},
				} {
					before := c.rows()
					err := run()
					switch {
					case kind != none && tt.mode != "fence" && j == 1: // raw SQL
						if kind == fresh {
							require.ErrorIs(t, err, gormguard.ErrRaw)
						} else {
							require.Error(t, err)
						}
					case kind == fresh:
						require.NoError(t, err, "%d", j)
						require.NotEqual(t, before, c.rows(), "%d", j)
						continue
					case kind == stale:
						require.ErrorIs(t, err, guard.ErrStale, "%d", j)
					default:
						require.ErrorIs(t, err, guard.ErrNoFence, "%d", j)
					}
					require.Equal(t, before, c.rows(), "%d", j)
				}
			}
		})
	}
}
