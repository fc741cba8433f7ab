package migrations_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// A database of its own for one test, and a connection to it.
type database struct {
	*pgx.Conn
	url string
}

func newDatabase(t testing.TB) database {
	t.Helper()
	url := servertest.Postgres(t)
	return database{connect(t, url), url}
}

// newFenced has the fence schema too.
func newFenced(t testing.TB) database {
	t.Helper()
	db := newDatabase(t)
	require.NoError(t, migrations.Up(t.Context(), db))
	return db
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, conn.Close(ctx))
	})
	return conn
}

func (db database) exec(t testing.TB, sql string) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql)
	require.NoError(t, err, sql)
}

// refused expects an SQLSTATE, and ends the transaction if there was one.
func (db database) refused(t testing.TB, code, sql string) *pgconn.PgError {
	t.Helper()
	_, err := db.Exec(t.Context(), sql)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr, "want %s of %s", code, sql)
	require.Equal(t, code, pgErr.Code, "%s: %s", sql, pgErr.Message)
	if db.PgConn().TxStatus() != 'I' {
		db.exec(t, "ROLLBACK")
	}
	return pgErr
}

// holding returns statements as one transaction that has entered the resources,
// whose fences it raises first.
func (db database) holding(t testing.TB, sql string, resources ...string) string {
	t.Helper()
	script := "BEGIN; "
	for _, r := range resources {
		db.exec(t, "SELECT fencing.raise("+migrations.QuoteLiteral(r)+", 1, 'n')")
		script += "SELECT fencing.enter(" + migrations.QuoteLiteral(r) + ", 1, 'n'); "
	}
	return script + sql + "; COMMIT"
}

func (db database) query(t testing.TB, sql string) string {
	t.Helper()
	var s string
	require.NoError(t, db.QueryRow(t.Context(), sql).Scan(&s), sql)
	return s
}

func protect(t testing.TB, table string, o migrations.ProtectOptions) (up, down string) {
	t.Helper()
	up, down, err := migrations.Protect(table, o)
	require.NoError(t, err)
	return up, down
}

// catalog describes everything in the database that is not Postgres' own, apart
// from what a table remembers of dropped columns.
func (db database) catalog(t testing.TB) string {
	t.Helper()
	return db.query(t, `
		WITH own AS (SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
		lines AS (
			SELECT format('schema %s %s', nspname, nspacl) FROM pg_namespace n WHERE n.oid IN (SELECT oid FROM own)
			UNION ALL SELECT format('relation %s %s %s %s %s %s %s', c.oid::regclass, relkind, relpersistence, reloptions, relacl, relispartition, obj_description(c.oid, 'pg_class'))
			  FROM pg_class c JOIN own ON own.oid = relnamespace
			UNION ALL SELECT format('column %s.%s %s %s %s %s %s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull,
				pg_get_expr(adbin, adrelid), attgenerated, attidentity, attacl, attislocal, col_description(attrelid, attnum))
			  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN own ON own.oid = relnamespace LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum
			 WHERE attnum > 0 AND NOT attisdropped
			UNION ALL SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(c.oid)) FROM pg_constraint c JOIN own ON own.oid = connamespace
			UNION ALL SELECT format('index %s', pg_get_indexdef(indexrelid)) FROM pg_index JOIN pg_class c ON c.oid = indrelid JOIN own ON own.oid = relnamespace
			UNION ALL SELECT format('trigger %s %s %s', tgenabled, tgparentid <> 0, pg_get_triggerdef(t.oid)) FROM pg_trigger t WHERE NOT tgisinternal
			UNION ALL SELECT format('function %s %s %s', pg_get_functiondef(p.oid), proacl, obj_description(p.oid, 'pg_proc')) FROM pg_proc p JOIN own ON own.oid = pronamespace
		)
		SELECT coalesce(string_agg(format, E'\n' ORDER BY format), '') FROM lines`)
}

// tool returns the path of one of Postgres' client programs.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("%s is not in PATH", name)
	}
	require.NoError(t, err)
	return path
}

var dumpNoise = regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`) // a random key per dump

func (db database) dump(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), tool(t, "pg_dump"), "-s", db.url).CombinedOutput()
	if strings.Contains(string(out), "server version mismatch") {
		return "" // a server of the environment; the catalog is compared too
	}
	require.NoError(t, err, string(out))
	return dumpNoise.ReplaceAllString(string(out), "")
}

// psql runs a script as a user would, and returns what it printed.
func (db database) psql(t testing.TB, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "psql"), "-X", "-v", "VERBOSITY=verbose", "-d", db.url, "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
