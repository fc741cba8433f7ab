package gormguard_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	sqlite "github.com/libtnb/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// An engine is a kind of database that the tests run on.
type engine struct {
	name string
	open func(t testing.TB) gorm.Dialector // of a fresh database
}

var (
	onSQLite = engine{"sqlite", func(t testing.TB) gorm.Dialector {
		return sqlite.Open("file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=synchronous(off)&_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(0)")
	}}
	onPostgres = engine{"postgres", func(t testing.TB) gorm.Dialector { return postgres.Open(servertest.Postgres(t)) }}
	onMariaDB  = engine{"mysql", func(t testing.TB) gorm.Dialector {
		config, err := driver.ParseDSN(servertest.MariaDB(t))
		require.NoError(t, err)
		config.ParseTime = true
		return mysql.Open(config.FormatDSN())
	}}
	engines = []engine{onSQLite, onPostgres, onMariaDB}
)

// A database has the fence schema, the tables of the models, a guarded and an
// unguarded *gorm.DB.
type database struct {
	testing.TB
	engine
	db     *gorm.DB // guarded
	bare   *gorm.DB
	sql    *sql.DB
	plugin *gormguard.Plugin
}

func quiet() *gorm.Config {
	return &gorm.Config{Logger: logger.Discard, DisableForeignKeyConstraintWhenMigrating: true}
}

func newDatabase(t testing.TB, e engine, config *gorm.Config, opts ...gormguard.Option) *database {
	t.Helper()
	d := newBare(t, e)
	if config == nil {
		config = quiet()
	}
	var err error
	d.db, err = gorm.Open(dialector(e, d.sql), config)
	require.NoError(t, err)
	require.NoError(t, d.db.SetupJoinTable(&Item{}, "Tags", &ItemTag{}))
	d.plugin = gormguard.New(append([]gormguard.Option{gormguard.WithTables("nameds"), gormguard.WithModels(models[:len(models)-1]...)}, opts...)...)
	require.NoError(t, d.db.Use(d.plugin))
	return d
}

// newDatabaseOf is a database that has other models besides, and guards only those of
// them that say which fence they need.
func newDatabaseOf(t testing.TB, e engine, config *gorm.Config, mode gormguard.Mode, models ...any) *database {
	t.Helper()
	d := newBare(t, e)
	require.NoError(t, d.bare.AutoMigrate(models...))
	var err error
	d.db, err = gorm.Open(dialector(e, d.sql), config)
	require.NoError(t, err)
	var fenced []any
	for _, m := range models {
		if _, ok := m.(gormguard.Fenced); ok {
			fenced = append(fenced, m)
		}
	}
	d.plugin = gormguard.New(gormguard.WithMode(mode), gormguard.WithModels(fenced...))
	require.NoError(t, d.db.Use(d.plugin))
	return d
}

// newBare is a database without a plugin.
func newBare(t testing.TB, e engine) *database {
	t.Helper()
	d := &database{TB: t, engine: e}
	var err error
	d.bare, err = gorm.Open(e.open(t), quiet())
	require.NoError(t, err)
	d.sql, err = d.bare.DB()
	require.NoError(t, err)
	d.sql.SetMaxOpenConns(8)
	d.sql.SetMaxIdleConns(8)
	t.Cleanup(func() { require.NoError(t, d.sql.Close()) })
	require.NoError(t, migrations.UpDB(t.Context(), d.sql, e.name))
	require.NoError(t, d.bare.SetupJoinTable(&Item{}, "Tags", &ItemTag{}))
	require.NoError(t, d.bare.AutoMigrate(append([]any{&Tag{}}, models...)...))
	// To compile its statements anew is most of what SQLite does in these tests.
	d.bare = d.bare.Session(&gorm.Session{PrepareStmt: true})
	require.NoError(t, d.bare.Create(&[]Tag{{ID: 1, Name: "red"}, {ID: 2, Name: "blue"}}).Error)
	return d
}

// dialector opens the same database again.
func dialector(e engine, db *sql.DB) gorm.Dialector {
	switch e.name {
	case "postgres":
		return postgres.New(postgres.Config{Conn: db})
	case "mysql":
		return mysql.New(mysql.Config{Conn: db})
	default:
		return sqlite.New(sqlite.Config{Conn: db})
	}
}

// fence makes a fence with a fresh nonce.
func fence(resource string, token guard.Token) guard.Fence {
	return guard.Fence{Resource: resource, Token: token, Nonce: rand.Text(), Holder: "test"}
}

// raised raises a fence and returns a context that carries it.
func (d *database) raised(resource string, token guard.Token) context.Context {
	d.Helper()
	f := fence(resource, token)
	require.NoError(d, d.plugin.Raise(d.Context(), f))
	return guard.NewContext(d.Context(), f)
}
