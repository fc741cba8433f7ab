package gormguard_test

import (
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
)

// Several statements may be in one text.
var onMariaDBMulti = engine{"mysql", func(t testing.TB) gorm.Dialector {
	config, err := driver.ParseDSN(servertest.MariaDB(t))
	require.NoError(t, err)
	config.ParseTime, config.MultiStatements = true, true
	return mysql.Open(config.FormatDSN())
}}

// The servers take all of these, and write items.
func TestRawWritesThatLookLikeReadsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		engine
		texts []string
	}{
		{onPostgres, []string{
			"CREATE TABLE z AS WITH d AS (DELETE FROM items RETURNING *) SELECT * FROM d",
			"MERGE INTO ONLY (items) i USING tags ON true WHEN MATCHED AND tags.id = 1 THEN UPDATE SET note = 'x'",
			"ALTER TABLE items ALTER COLUMN note TYPE text USING 'x'",
			"ALTER TABLE items SET SCHEMA fencing",
		}},
		{onSQLite, []string{
			"CREATE TABLE z (event TEXT); UPDATE items SET note = 'x'",
			"CREATE TABLE event (id int); DELETE FROM items",
		}},
		{onMariaDBMulti, []string{
			"SET STATEMENT max_statement_time = 10 FOR UPDATE items SET note = 'x'",
			"BEGIN NOT ATOMIC TRUNCATE items; END",
			"UPDATE tags t JOIN tags o ON o.id = t.id, items SET items.note = 'x'",
			"UPDATE tags t JOIN tags o ON o.id = t.id STRAIGHT_JOIN items SET items.note = 'x'",
			"DELETE i FROM tags t JOIN tags o ON o.id = t.id, items i",
			"CREATE TABLE event (id int); UPDATE items SET note = 'x'",
			"CREATE TRIGGER z AFTER INSERT ON tags FOR EACH ROW SET @x = 1; UPDATE items SET note = 'x'",
			"SET @a = 1 /*!999999 ' */; UPDATE items SET note = 'x' /*!999999 ' */",
		}},
	} {
		d := newDatabase(t, tt.engine, nil)
		for n, text := range tt.texts {
			t.Run(tt.name+"/"+text, func(t *testing.T) {
				c := d.cell(n, none)
				before := c.rows()
				require.ErrorIs(t, c.tx.Exec(text).Error, guard.ErrNoFence)
				require.Equal(t, before, c.rows())
				_, err := d.sql.ExecContext(t.Context(), text)
				require.NoError(t, err)
				if !strings.Contains(text, "SCHEMA") { // with which the table is gone
					require.NotEqual(t, before, c.rows(), "the text is no write")
				}
			})
		}
	}
}

// A migration that changes a column or adds one leaves the rows what they were.
func TestMigrationsOfGuardedTablesPass(t *testing.T) {
	t.Parallel()
	type Pair struct {
		A     int64  `gorm:"primaryKey;autoIncrement:false"`
		B     int64  `gorm:"primaryKey;autoIncrement:false"`
		Value string `gorm:"size:40"`
		Added int64  `gorm:"not null;default:7"`
		Token int64  `gorm:"column:fence_token;fence;not null;default:0"`
	}
	for _, e := range []engine{onPostgres, onMariaDB} {
		d := newDatabase(t, e, nil)
		require.NoError(t, d.db.AutoMigrate(&Pair{}), e.name)
		types, err := d.bare.Migrator().ColumnTypes("pairs")
		require.NoError(t, err)
		require.Contains(t, types[2].DatabaseTypeName(), "varchar", e.name)
		require.ErrorIs(t, d.db.Migrator().DropColumn(&Pair{}, "Added"), guard.ErrNoFence, e.name)
	}
}

// What only reads a guarded table, or escapes in a LIKE, needs no fence.
func TestReadsInStatementsOnOtherTablesPass(t *testing.T) {
	t.Parallel()
	escape := map[string]string{"sqlite": `body LIKE ? ESCAPE '\'`, "postgres": `body LIKE ? ESCAPE '\'`, "mysql": `body LIKE ? ESCAPE '\\'`}
	for _, e := range engines {
		for mode, m := range modes {
			t.Run(e.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, e, nil, gormguard.WithMode(m))
				for n, kind := range []held{none, fresh} {
					c := d.cell(n, kind)
					items := func() *gorm.DB { return c.tx.Model(&Item{}).Select("id") }
					var docs []Doc
					require.NoError(t, c.tx.Where(escape[e.name], "one").Find(&docs).Error)
					require.Len(t, docs, 1)
					require.NoError(t, c.tx.Clauses(clause.Locking{Strength: map[bool]string{true: "", false: "UPDATE"}[e.name == "sqlite"]}).Where(escape[e.name], "one").Find(&docs).Error)
					require.NoError(t, c.tx.Model(&Tag{}).Where("id IN (?)", items()).Update("name", "x").Error)
					require.NoError(t, c.tx.Where("id NOT IN (?) AND id > 100", items()).Delete(&Tag{}).Error)
					require.NoError(t, c.tx.Exec("INSERT INTO tags (id, name) SELECT id + ?, note FROM items", 1000*(n+1)).Error)
					if e.name != "mysql" {
						from := clause.From{Tables: []clause.Table{{Name: "items"}}}
						require.NoError(t, c.tx.Model(&Tag{}).Clauses(from).Where("tags.id = 1").Update("name", "y").Error)
					}
				}
				c := d.cell(9, fresh)
				require.NoError(t, c.tx.Model(&Doc{}).Where(escape[e.name], "one").Update("body", "two").Error)
			})
		}
	}
}
