package servertest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/go-fencing/fencing/internal/localserver"
)

// MariaDB returns the data source name, for go-sql-driver/mysql, of a fresh
// database of its own on the server that the test process shares, as a user who
// may do everything. It is dropped at the end of the test.
//
// Where that is a child process, it flushes at a commit in benchmarks only, as that
// of [Postgres] does.
func MariaDB(t testing.TB) string {
	t.Helper()
	shared, settings := &mariadb, map[string]string(nil)
	if _, measures := t.(*testing.B); measures {
		shared, settings = &flushing, map[string]string{"innodb-flush-log-at-trx-commit": "1"}
	}
	server, err := shared.get(MySQLEnv, func(ctx context.Context) (*localserver.MariaDB, string, error) {
		s, err := localserver.StartMariaDB(ctx, localserver.MariaDBOptions{Settings: settings})
		if err != nil {
			return nil, "", err
		}
		return s, s.DSN(""), nil
	})
	require(t, err)
	config, err := mysql.ParseDSN(server)
	if err != nil {
		t.Fatalf("servertest: %s is not a data source name of the form user:password@tcp(host:port)/", MySQLEnv) // not err: it may quote a password
	}
	name := "fencing_" + strings.ToLower(rand.Text())
	executeMySQL(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { executeMySQL(t, server, "DROP DATABASE "+name) })
	config.DBName = name
	return config.FormatDSN()
}

// NewMariaDB starts a server of its own, for a test that breaks it. It is stopped
// at the end of the test.
func NewMariaDB(t testing.TB, o localserver.MariaDBOptions) *localserver.MariaDB {
	t.Helper()
	s, err := localserver.StartMariaDB(t.Context(), o)
	require(t, err)
	stopAtEnd(t, s.Stop)
	return s
}

// executeMySQL does not use t.Context, which has ended when a cleanup runs. A
// transaction that a failed test left open must not block it for long.
func executeMySQL(t testing.TB, dsn, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	defer func() { _ = db.Close() }() // the statement below has its own error
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Fatalf("servertest: %s: %v", statement, err)
	}
}
