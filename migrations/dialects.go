package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// MySQLFS and SQLiteFS hold the history for MySQL with MariaDB, and for SQLite, in
// the folders "mysql" and "sqlite". golang-migrate reads them with iofs.New. Each
// file is one statement, so that no driver has to be told to take several.
//
//go:embed mysql/*.sql
var MySQLFS embed.FS

// SQLiteFS is described with [MySQLFS].
//
//go:embed sqlite/*.sql
var SQLiteFS embed.FS

// The names of the dialects, as in package sqlguard.
const (
	dialectPostgres = "postgres"
	dialectMySQL    = "mysql"
	dialectSQLite   = "sqlite"
)

func validateDialect(name string) error {
	if !slices.Contains([]string{dialectPostgres, dialectMySQL, dialectSQLite}, name) {
		return fmt.Errorf("unknown dialect %.40q; there are %q, %q and %q", name, dialectPostgres, dialectMySQL, dialectSQLite)
	}
	return nil
}

// stepsFor returns the history of a dialect.
func stepsFor(dialect string) ([]step, error) {
	switch dialect {
	case dialectMySQL:
		return readHistory(MySQLFS, "mysql")
	case dialectSQLite:
		return readHistory(SQLiteFS, "sqlite")
	}
	return history()
}

func readHistory(files fs.FS, dir string) ([]step, error) {
	files, err := fs.Sub(files, dir)
	if err != nil {
		return nil, err
	}
	ups, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]step, len(ups))
	for i, name := range ups {
		base := strings.TrimSuffix(name, ".up.sql")
		number, title, ok := strings.Cut(base, "_")
		if !ok || number != fmt.Sprintf("%04d", i+1) {
			return nil, fmt.Errorf("migrations: %s is not number %d of the history", name, i+1)
		}
		up, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		down, err := fs.ReadFile(files, base+".down.sql")
		if err != nil {
			return nil, err
		}
		steps[i] = step{name: title, up: string(up), down: string(down)}
	}
	return steps, nil
}

// RenderFor is [Render] for a dialect: "postgres", "mysql" (MariaDB too) or
// "sqlite", or a sqlguard.Dialect. Of the tools, tern and psql are for Postgres
// alone.
func RenderFor[D ~string](dialect D, tool Tool, opts ...Option) ([]File, error) {
	if err := validateDialect(string(dialect)); err != nil {
		return nil, fmt.Errorf("migrations: render: %w", err)
	}
	if string(dialect) == dialectPostgres {
		return Render(tool, opts...)
	}
	o, err := newOptions(opts)
	switch {
	case err != nil:
		return nil, err
	case o.schema != defaultSchema:
		return nil, fmt.Errorf("migrations: render: %s has no schema %q; the table is in the database of the connection", dialect, o.schema)
	case tool == Tern || tool == Psql:
		return nil, fmt.Errorf("migrations: render: %s is for Postgres", tool)
	}
	steps, err := stepsFor(string(dialect))
	if err != nil {
		return nil, err
	}
	changes := make([]Change, len(steps))
	for i, s := range steps {
		changes[i] = Change{Number: o.first + int64(i), Name: s.name, Up: s.up, Down: s.down}
	}
	return RenderChanges(tool, changes...)
}
