package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

const latest = migrations.Latest

func TestMigrateUpDownStatus(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url

	fails(t, 1, `is not installed; run "fencectl migrate up"`, "migrate", "status", pg)
	require.Equal(t, "there is no fence schema \"fencing\"\n", ok(t, "migrate", "down", pg))
	require.Equal(t, "fence schema \"fencing\" is installed, at version 1\n", ok(t, "migrate", "up", "--to=1", pg))
	require.Equal(t, "fence schema \"fencing\" is at version 2; it was at version 1\n", ok(t, "migrate", "up", "--to=2", pg))
	fails(t, 1, fmt.Sprintf(`is at version 2 of %d; run "fencectl migrate up"`, latest), "migrate", "status", pg)
	require.Equal(t, fmt.Sprintf("fence schema \"fencing\" is at version %d; it was at version 2\n", latest), ok(t, "migrate", "up", pg))
	require.Equal(t, fmt.Sprintf("fence schema \"fencing\" is at version %d already\n", latest), ok(t, "migrate", "up", pg))
	require.Contains(t, ok(t, "migrate", "status", pg), fmt.Sprintf("is at version %d, up to date", latest))
	require.Equal(t, "fencing public", strings.ReplaceAll(db.schemas(t), "information_schema ", ""))
	require.Equal(t, fmt.Sprintf("fence schema \"fencing\" is removed; it was at version %d\n", latest), ok(t, "migrate", "down", pg))
	require.NotContains(t, db.schemas(t), "fencing")
}

func TestMigrateForScripts(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	r := run(t, "migrate", "status", "--json", pg)
	require.Equal(t, 1, r.code)
	require.Empty(t, r.stderr)
	var status struct {
		Schema          string
		Version, Latest int
		UpToDate        bool `json:"up_to_date"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &status))
	require.Equal(t, "fencing", status.Schema)
	require.Equal(t, latest, status.Latest)
	require.False(t, status.UpToDate)
	require.JSONEq(t, fmt.Sprintf(`{"schema":"fencing","from":0,"to":%d}`, latest), ok(t, "migrate", "up", "--json", pg))
	require.NoError(t, json.Unmarshal([]byte(ok(t, "migrate", "status", "--json", pg)), &status))
	require.True(t, status.UpToDate)
	require.JSONEq(t, fmt.Sprintf(`{"schema":"fencing","from":%d,"to":0}`, latest), ok(t, "migrate", "down", "--json", pg))
}

// A script must not take this for "bad usage; nothing was changed".
func TestMigrateWhoseResultCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /dev/full")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, full.Close()) })
	db := newDatabase(t)
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "status", "--json"}, {"help"}, {"migrate", "--help"}, {"completion", "bash"}} {
		cmd := call{args: append(args, "--postgres", db.url)}.command(t)
		cmd.Stdout = full
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.Error(t, cmd.Run())
		require.Equal(t, 3, cmd.ProcessState.ExitCode(), stderr.String())
		require.Contains(t, stderr.String(), "no space left on device")
	}
	require.Contains(t, db.schemas(t), "fencing", "it was done")
}

func TestMigrateAnotherSchema(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg, schema := "--postgres="+db.url, `--schema=Odd "Fence" $1`
	ok(t, "migrate", "up", pg, schema)
	ok(t, "migrate", "status", pg, schema)
	fails(t, 1, "not installed", "migrate", "status", pg)
	require.Contains(t, db.schemas(t), `Odd "Fence" $1`)
	ok(t, "migrate", "down", pg, schema)
	fails(t, 1, `run "fencectl migrate up --schema 'Odd "Fence" $1'"`, "migrate", "status", pg, schema)
	require.NotContains(t, db.schemas(t), "Odd")
	db.exec(t, "CREATE SCHEMA taken")
	fails(t, 2, "a schema of this name exists and is not a fence schema; choose another with --schema", "migrate", "up", pg, "--schema=taken")
	fails(t, 1, `run "fencectl migrate up --schema taken"`, "migrate", "status", pg, "--schema=taken")
}

func TestMigrateLeavesANewerSchemaAlone(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 999'")
	fails(t, 1, fmt.Sprintf("is at version 999, this program knows %d; upgrade fencectl", latest), "migrate", "status", pg)
	fails(t, 1, "upgrade the library", "migrate", "up", pg)
	fails(t, 1, "upgrade the library", "migrate", "down", pg)
}

func TestMigrateDownRefusesWhileTablesNeedTheSchema(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE TABLE inventory (sku text PRIMARY KEY)")
	ok(t, "protect", "inventory", "--resource=sku", "--trigger", pg)
	r := fails(t, 1, "tables are still protected: inventory", "migrate", "down", pg)
	require.Contains(t, r.stderr, "fencectl protect --down TABLE")
	ok(t, "protect", "--down", "inventory", pg)
	ok(t, "migrate", "down", pg)
}

func TestTheAddressMayComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const nowhere = "postgres://app@127.0.0.1:1/shop"
	for name, c := range map[string]struct {
		env  []string
		code int
		says string
	}{
		"ours":             {[]string{"FENCING_POSTGRES_URL=" + db.url}, 1, "not installed"},
		"the application":  {[]string{"DATABASE_URL=" + db.url}, 1, "not installed"},
		"ours comes first": {[]string{"DATABASE_URL=" + nowhere, "FENCING_POSTGRES_URL=" + db.url}, 1, "not installed"},
		"named in errors":  {[]string{"DATABASE_URL=" + nowhere}, 3, "DATABASE_URL: cannot connect"},
		"empty is unset":   {[]string{"FENCING_POSTGRES_URL=", "DATABASE_URL=" + nowhere}, 3, "DATABASE_URL"},
		"bad":              {[]string{"FENCING_POSTGRES_URL=mysql://h/d"}, 2, "FENCING_POSTGRES_URL: a mysql URL"},
	} {
		t.Run(name, func(t *testing.T) {
			r := call{args: []string{"migrate", "status"}, env: c.env}.run(t)
			require.Equal(t, c.code, r.code, r.stderr)
			require.Contains(t, r.stdout+r.stderr, c.says)
		})
	}
	r := call{args: []string{"migrate", "status", "--postgres", db.url}, env: []string{"FENCING_POSTGRES_URL=" + nowhere}}.run(t)
	require.Equal(t, 1, r.code, "the flag comes first: %s", r.stderr)
}

// A database URL of an application may have parameters of pgx's pool.
func TestTheAddressMayHaveParametersOfThePool(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	fails(t, 1, "not installed", "migrate", "status", "--postgres", db.url+"&pool_max_conns=7&pool_max_conn_lifetime=1h")
}

// ways cuts a printed file into the way up and the way down.
var ways = map[string]func(files map[string]string) (up, down string){
	"goose": func(files map[string]string) (up, down string) {
		for _, name := range sorted(files) {
			u, d, _ := strings.Cut(files[name], "-- +goose Down")
			up, down = up+u, d+down
		}
		return up, down
	},
	"tern": func(files map[string]string) (up, down string) {
		for _, name := range sorted(files) {
			u, d, _ := strings.Cut(files[name], "---- create above / drop below ----")
			up, down = up+u, d+down
		}
		return up, down
	},
	"golang-migrate": directions,
	"psql":           directions,
	"atlas": func(files map[string]string) (up, down string) {
		delete(files, "atlas.sum")
		for _, name := range sorted(files) {
			up += files[name]
		}
		return up, ""
	},
}

func directions(files map[string]string) (up, down string) {
	for _, name := range sorted(files) {
		if strings.HasSuffix(name, ".up.sql") {
			up += files[name]
		} else {
			down = files[name] + down
		}
	}
	return up, down
}

func TestMigratePrintForEveryTool(t *testing.T) {
	t.Parallel()
	for _, tool := range migrations.Tools() {
		t.Run(string(tool), func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			dir := filepath.Join(t.TempDir(), "db", "migrations")
			listed := strings.Fields(ok(t, "migrate", "print", "--tool="+string(tool), "--dir="+dir, "--schema=fence2"))
			files := readDir(t, dir)
			require.Len(t, listed, len(files))
			for _, path := range listed {
				require.Contains(t, files, filepath.Base(path))
			}
			r := fails(t, 2, "already; nothing was written", "migrate", "print", "--tool="+string(tool), "--dir="+dir)
			require.Contains(t, r.stderr, "choose another --number or --dir")
			require.Equal(t, files, readDir(t, dir))

			up, down := ways[string(tool)](files)
			db.psql(t, up, "-1")
			ok(t, "migrate", "status", "--schema=fence2", "--postgres="+db.url)
			if down == "" {
				return
			}
			db.psql(t, down, "-1")
			require.NotContains(t, db.schemas(t), "fence2")
		})
	}
}

// Piped into psql, what is printed must not undo itself.
func TestMigratePrintToStdoutIsOneWay(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"psql", "golang-migrate", "atlas"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			db.psql(t, ok(t, "migrate", "print", "--tool="+tool))
			ok(t, "migrate", "status", "--postgres="+db.url)
			if tool == "atlas" {
				return
			}
			// golang-migrate has a file per step, of which the last comes first.
			db.psql(t, ok(t, "migrate", "print", "--down", "--tool="+tool))
			require.NotContains(t, db.schemas(t), "fencing")
		})
	}
}

func TestMigratePrintForScripts(t *testing.T) {
	t.Parallel()
	var printed struct {
		Files []struct{ Name, Content string }
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, "migrate", "print", "--tool=goose", "--number=12", "--json")), &printed))
	require.Len(t, printed.Files, latest)
	require.Equal(t, "00012_fence.sql", printed.Files[0].Name)
	require.Contains(t, printed.Files[0].Content, "-- +goose Up")
}

func TestMigratePrintLeavesAtlasSumAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "atlas.sum"), []byte("mine"), 0o644))
	require.Contains(t, ok(t, "migrate", "print", "--tool=atlas", "--dir="+dir), "atlas migrate hash")
	files := readDir(t, dir)
	require.Equal(t, "mine", files["atlas.sum"])
	require.Len(t, files, latest+1)
}

func TestMigratePrintIntoNoDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	fails(t, 2, `--dir "`+file+`"`, "migrate", "print", "--tool=goose", "--dir="+file)
}
