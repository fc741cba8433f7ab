package sqlguard

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/internal/sqlerror"
)

// A Dialect is the kind of database that a guard talks to.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql" // MariaDB too
	SQLite   Dialect = "sqlite"
)

// ParseDialect reads the name of a dialect, or one under which a driver of it is
// usually registered. It refuses every other name.
func ParseDialect(name string) (Dialect, error) {
	switch strings.ToLower(name) {
	case "postgres", "postgresql", "pgx", "pq":
		return Postgres, nil
	case "mysql", "mariadb":
		return MySQL, nil
	case "sqlite", "sqlite3":
		return SQLite, nil
	}
	return "", fmt.Errorf("sqlguard: unknown dialect %.40q; there are %q, %q and %q", name, Postgres, MySQL, SQLite)
}

// engine returns how the dialect does things.
func (d Dialect) engine() (engine, error) {
	switch d {
	case Postgres:
		return postgresEngine{}, nil
	case MySQL:
		return &mysqlEngine{}, nil
	case SQLite:
		return sqliteEngine{}, nil
	}
	_, err := ParseDialect(string(d))
	if err == nil {
		err = fmt.Errorf("sqlguard: %q is another name of a dialect; read it with ParseDialect", string(d))
	}
	return nil, err
}

// driverDialects are the packages of drivers whose dialect is certain.
var driverDialects = map[string]Dialect{
	"github.com/jackc/pgx/v5/stdlib":       Postgres,
	"github.com/jackc/pgx/v4/stdlib":       Postgres,
	"github.com/lib/pq":                    Postgres,
	"github.com/go-sql-driver/mysql":       MySQL,
	"modernc.org/sqlite":                   SQLite,
	"github.com/glebarez/go-sqlite":        SQLite,
	"github.com/mattn/go-sqlite3":          SQLite,
	"github.com/ncruces/go-sqlite3/driver": SQLite,
}

// DialectOf returns the dialect of db's driver, if that is one of the usual ones.
// A driver that wraps another, as for tracing, hides it: name the dialect then.
func DialectOf(db *sql.DB) (Dialect, error) {
	if db == nil {
		return "", errors.New("sqlguard: the database is nil")
	}
	name := sqlerror.PackageOf(db.Driver())
	if d := driverDialects[name]; d != "" {
		return d, nil
	}
	return "", fmt.Errorf("sqlguard: the dialect of driver %q is not known; name it: %q, %q or %q", name, Postgres, MySQL, SQLite)
}
