package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

func names(files []migrations.File) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.Name
	}
	return out
}

func TestEveryToolGetsItsFiles(t *testing.T) {
	t.Parallel()
	for tool, want := range map[migrations.Tool]string{
		migrations.Goose:         "00007_fence.sql 00008_sequence.sql 00009_operation.sql 00010_lease.sql 00011_rebase.sql",
		migrations.GolangMigrate: "0007_fence.up.sql 0007_fence.down.sql 0008_sequence.up.sql 0008_sequence.down.sql 0009_operation.up.sql 0009_operation.down.sql 0010_lease.up.sql 0010_lease.down.sql 0011_rebase.up.sql 0011_rebase.down.sql",
		migrations.Tern:          "007_fence.sql 008_sequence.sql 009_operation.sql 010_lease.sql 011_rebase.sql",
		migrations.Atlas:         "0007_fence.sql 0008_sequence.sql 0009_operation.sql 0010_lease.sql 0011_rebase.sql atlas.sum",
		migrations.Psql:          "fence.up.sql fence.down.sql",
	} {
		files, err := migrations.Render(tool, migrations.StartAt(7))
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(names(files), " "), tool)
		for _, f := range files {
			require.True(t, strings.HasSuffix(f.Content, "\n"), "%s ends its last line", f.Name)
		}
	}
	require.Len(t, migrations.Tools(), 5)
	_, err := migrations.Render("liquibase")
	require.EqualError(t, err, `migrations: render: no tool "liquibase"; there are ["goose" "golang-migrate" "tern" "atlas" "psql"]`)
}

func TestRenderForGolangMigrateIsTheEmbeddedHistory(t *testing.T) {
	t.Parallel()
	files, err := migrations.Render(migrations.GolangMigrate)
	require.NoError(t, err)
	require.Len(t, files, 2*migrations.Latest)
	for _, f := range files {
		original, err := migrations.FS.ReadFile(f.Name)
		require.NoError(t, err)
		require.Equal(t, string(original), f.Content)
	}
}

func TestPsqlInstallsAndRemovesEverything(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	before := db.catalog(t)
	files, err := migrations.Render(migrations.Psql, migrations.WithSchema("My Schema"))
	require.NoError(t, err)
	out, err := db.psql(t, files[0].Content)
	require.NoError(t, err, out)
	require.Equal(t, migrations.Latest, version(t, db, migrations.WithSchema("My Schema")))
	after := db.catalog(t)

	out, err = db.psql(t, files[0].Content)
	require.Error(t, err, "a second time")
	require.Equal(t, 1, strings.Count(out, "ERROR"), "it stops at the first error:\n%s", out)
	require.Equal(t, after, db.catalog(t))

	out, err = db.psql(t, files[1].Content)
	require.NoError(t, err, out)
	require.Equal(t, before, db.catalog(t))
}

func TestPsqlProtectsATable(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, `CREATE TABLE "Odd :sku" (sku text, tags text[], sku2 text)`)
	before := db.catalog(t)
	o := migrations.ProtectOptions{Trigger: true, Resource: `'it''s {{.}} \ ' || sku || ':sku' || E'\t\\' || coalesce((tags[1:1])[1], '')`}
	up, down := protect(t, `"Odd :sku"`, o)
	files, err := migrations.RenderChanges(migrations.Psql, migrations.Change{Name: "protect", Up: up, Down: down})
	require.NoError(t, err)
	out, err := db.psql(t, "\\set sku boom\n\\set 1 boom\n"+files[0].Content)
	require.NoError(t, err, out)
	protected := db.catalog(t)
	db.refused(t, "UF004", `INSERT INTO "Odd :sku" VALUES ('a')`)
	out, err = db.psql(t, files[1].Content)
	require.NoError(t, err, out)
	require.Equal(t, before, db.catalog(t))
	db.exec(t, up)
	require.Equal(t, protected, db.catalog(t), "psql read the same SQL as the library sends")
}

func TestSeveralChangesGoDownInReverse(t *testing.T) {
	t.Parallel()
	files, err := migrations.RenderChanges(migrations.Psql, migrations.Change{Number: 1, Name: "a", Up: "UP A;", Down: "DOWN A;"}, migrations.Change{Number: 2, Name: "b", Up: "UP B;", Down: "DOWN B;"})
	require.NoError(t, err)
	require.Equal(t, "\\set ON_ERROR_STOP on\nBEGIN;\n\nUP A;\n\nUP B;\n\nCOMMIT;\n", files[0].Content)
	require.Equal(t, "\\set ON_ERROR_STOP on\nBEGIN;\n\nDOWN B;\n\nDOWN A;\n\nCOMMIT;\n", files[1].Content)
}

// The expected sum was written by ariga.io/atlas itself.
func TestAtlasSumIsWhatAtlasComputes(t *testing.T) {
	t.Parallel()
	files, err := migrations.RenderChanges(migrations.Atlas, migrations.Change{Number: 1, Name: "first", Up: "CREATE TABLE t (id int);\n"}, migrations.Change{Number: 2, Name: "second", Up: "DROP TABLE t;\n"})
	require.NoError(t, err)
	require.Equal(t, migrations.File{Name: "atlas.sum", Content: atlasSum}, files[2])
}

const atlasSum = `h1:sLzDlASxVZnR0J52M5d9N8gJh7wAKBWyf5oZMYEe7aU=
0001_first.sql h1:CIQZ2Qi8c7XEoBqrH8sApAq1XgKHxrcqDZx4P1W/UsM=
0002_second.sql h1:KY2l149UgccFFVcGCA8Lq4jX4plfP6lrY60bp5GBdL8=
`

func TestSQLThatAToolWouldObeyIsRefused(t *testing.T) {
	t.Parallel()
	for tool, sql := range map[migrations.Tool]string{
		migrations.Goose: "SELECT '\n-- +goose Down\n'", migrations.Tern: "SELECT '\n---- create above / drop below ----\n'", migrations.Atlas: "-- atlas:txmode none\n",
	} {
		_, err := migrations.RenderChanges(tool, migrations.Change{Number: 1, Name: "a", Up: sql})
		require.ErrorContains(t, err, "which the tool would obey", tool)
		_, err = migrations.RenderChanges(migrations.GolangMigrate, migrations.Change{Number: 1, Name: "a", Up: sql})
		require.NoError(t, err)
	}
}

func TestChangesNeedANumberAndAFileName(t *testing.T) {
	t.Parallel()
	for _, c := range []migrations.Change{{Number: 1}, {Number: 1, Name: "../a"}, {Number: 1, Name: "a b"}, {Number: 1, Name: "é"}, {Number: -1, Name: "a"}} {
		_, err := migrations.RenderChanges(migrations.Goose, c)
		require.ErrorContains(t, err, fmt.Sprintf("migrations: render %q for goose: ", c.Name))
	}
	_, err := migrations.Render(migrations.Tern, migrations.StartAt(20_260_101_000_000))
	require.ErrorContains(t, err, "it cannot have number 20260101000000")
	files, err := migrations.Render(migrations.Goose, migrations.StartAt(20_260_101_000_000))
	require.NoError(t, err)
	require.Equal(t, "20260101000002_operation.sql", files[2].Name)
}
