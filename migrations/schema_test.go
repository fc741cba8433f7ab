package migrations_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

var oddSchemas = []string{"My Schema", `with "quotes"`, "o'clock", "select", "fencing2", "schéma", "{{.}}", `back\slash`, "%s", "x.y", "--", "$$"}

func TestTheSchemaCanHaveAnyName(t *testing.T) {
	t.Parallel()
	for _, name := range oddSchemas {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			in := migrations.WithSchema(name)
			before := db.catalog(t)
			require.NoError(t, migrations.Up(t.Context(), db, in))
			require.NoError(t, migrations.Up(t.Context(), db, in))
			require.Equal(t, migrations.Latest, version(t, db, in))
			require.Equal(t, 0, version(t, db), "the default schema")

			s := migrations.QuoteIdent(name)
			db.exec(t, "SELECT "+s+".raise('r', 1, 'n'); BEGIN; SELECT "+s+".enter_all('{r}', '{1}', '{n}')")
			require.Equal(t, "\nr\n", db.query(t, "SELECT current_setting('fencing.held')"), "the setting keeps its name")
			db.exec(t, "COMMIT; SELECT "+s+".issue('r', 'm'); SELECT "+s+".next_token('r'); SELECT "+s+".once('o')")
			db.refused(t, "UF001", "SELECT "+s+".enter('r', 1, 'n')")

			db.exec(t, "CREATE TABLE inventory (sku text)")
			up, down := protect(t, "inventory", migrations.ProtectOptions{Trigger: true, Resource: "sku", Schema: name})
			db.exec(t, up)
			db.refused(t, "UF004", "INSERT INTO inventory VALUES ('r')")
			db.exec(t, "BEGIN; SELECT "+s+".enter('r', 2, 'm'); INSERT INTO inventory VALUES ('r'); COMMIT")
			err := migrations.Down(t.Context(), db, in)
			require.ErrorIs(t, err, migrations.ErrProtected)
			require.ErrorContains(t, err, "fencectl protect --down TABLE --schema ")
			db.exec(t, down+"; DROP TABLE inventory")
			require.NoError(t, migrations.Down(t.Context(), db, in))
			require.Equal(t, before, db.catalog(t))
		})
	}
}

func TestTwoSchemasLiveSideBySide(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	other := migrations.WithSchema("other")
	require.NoError(t, migrations.Up(t.Context(), db, other))
	db.exec(t, "SELECT fencing.raise('r', 7, 'n')")
	db.refused(t, "UF002", "SELECT other.enter('r', 7, 'n')")
	require.NoError(t, migrations.Down(t.Context(), db))
	require.Equal(t, migrations.Latest, version(t, db, other))
}

func TestOnlyTheSchemaIsRenamed(t *testing.T) {
	t.Parallel()
	files, err := migrations.Render(migrations.GolangMigrate, migrations.WithSchema("elsewhere"))
	require.NoError(t, err)
	stays := regexp.MustCompile(`'[^'\n]*fencing[^'\n]*'|\$fencing\$|--[^\n]*`)
	for _, f := range files {
		require.NotContains(t, stays.ReplaceAllString(f.Content, ""), "fencing", f.Name)
		original, err := migrations.FS.ReadFile(f.Name)
		require.NoError(t, err)
		require.Equal(t, string(original), strings.ReplaceAll(f.Content, "elsewhere", "fencing"), f.Name)
		require.Equal(t, strings.Count(string(original), "'fencing.held'"), strings.Count(f.Content, "'fencing.held'"), f.Name)
	}
}
