package main_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// sqlState runs a statement of an unguarded client and returns what it gets.
func (d database) sqlState(t *testing.T, sql string) string {
	t.Helper()
	_, err := d.conn.Exec(t.Context(), sql)
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		require.NoError(t, err)
		return ""
	}
	return pgErr.Code
}

// shape describes the columns and triggers of all tables of the user.
func (d database) shape(t *testing.T) string {
	t.Helper()
	return d.query(t, `SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
		SELECT format('%s.%s %s %s', attrelid::regclass, attname, atttypid::regtype, pg_get_expr(adbin, adrelid)) AS line
		  FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum JOIN pg_class c ON c.oid = attrelid
		 WHERE attnum > 0 AND NOT attisdropped AND relkind IN ('r', 'p') AND relnamespace::regnamespace::text !~ '^(pg_|information_schema|fencing)'
		UNION ALL SELECT format('%s %s', tgrelid::regclass, pg_get_triggerdef(t.oid)) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
		 WHERE relnamespace::regnamespace::text !~ '^fencing') AS lines`)
}

func TestS38_ProtectOddTables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ create, table, write string }{
		"plain":            {"CREATE TABLE inventory (sku text)", "inventory", "INSERT INTO inventory VALUES ('a')"},
		"folded":           {"CREATE TABLE inventory (sku text)", "InVentory", "INSERT INTO inventory VALUES ('a')"},
		"schema":           {"CREATE SCHEMA app; CREATE TABLE app.inventory (sku text)", "app.inventory", "INSERT INTO app.inventory VALUES ('a')"},
		"quotes":           {`CREATE SCHEMA "A b"; CREATE TABLE "A b"."say ""hi"" $1; --" (sku text)`, `"A b"."say ""hi"" $1; --"`, `INSERT INTO "A b"."say ""hi"" $1; --" VALUES ('a')`},
		"keyword":          {`CREATE TABLE "table" (sku text)`, `"table"`, `INSERT INTO "table" VALUES ('a')`},
		"letters":          {`CREATE TABLE "Lagerbestände" (sku text)`, `"Lagerbestände"`, `INSERT INTO "Lagerbestände" VALUES ('a')`},
		"partitioned":      {"CREATE TABLE parts (sku text) PARTITION BY LIST (sku); CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a')", "parts", "INSERT INTO parts_a VALUES ('a')"},
		"inherited":        {"CREATE TABLE base (sku text); CREATE TABLE derived () INHERITS (base)", "base", "INSERT INTO derived VALUES ('a')"},
		"percent and back": {`CREATE TABLE "100%\s" (sku text)`, `"100%\s"`, `INSERT INTO "100%\s" VALUES ('a')`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			pg := "--postgres=" + db.url
			ok(t, "migrate", "up", pg)
			db.exec(t, c.create)
			before := db.shape(t)

			require.Contains(t, ok(t, "protect", c.table, "--resource='inventory:' || sku", "--trigger", pg), "is protected: writes need the fence 'inventory:' || sku\n")
			require.Contains(t, db.shape(t), "fence_token bigint 0")
			require.Equal(t, "UF004", db.sqlState(t, c.write), "an unguarded write")
			db.exec(t, "SELECT fencing.raise('inventory:a', 1, 'n')")
			db.exec(t, "BEGIN; SELECT fencing.enter('inventory:a', 1, 'n'); "+c.write+"; ROLLBACK")

			require.Contains(t, ok(t, "protect", c.table, "--down", pg), "no longer protected")
			require.Equal(t, before, db.shape(t))
			require.Empty(t, db.sqlState(t, c.write))
		})
	}
}

func TestProtectWithoutATriggerSaysThatItRefusesNothing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	db.exec(t, "CREATE TABLE inventory (sku text)")
	require.Contains(t, ok(t, "protect", "inventory", "--resource=sku", "--column=Token $1", pg), "nothing refuses unguarded writes without --trigger")
	require.Contains(t, db.shape(t), `Token $1 bigint 0`)
	require.Empty(t, db.sqlState(t, "INSERT INTO inventory VALUES ('a')"))
	ok(t, "protect", "inventory", "--down", "--column=Token $1", pg)
	require.NotContains(t, db.shape(t), "Token")
}

func TestProtectWithoutAColumn(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	require.JSONEq(t, `{"table":"inventory","protected":true,"trigger":true,"resource":""}`, ok(t, "protect", "inventory", "--resource=", "--trigger", "--no-column", "--json", pg))
	require.NotContains(t, db.shape(t), "fence_token")
	require.Equal(t, "UF004", db.sqlState(t, "INSERT INTO inventory VALUES ('a')"))
	require.JSONEq(t, `{"table":"inventory","protected":false,"trigger":false}`, ok(t, "protect", "inventory", "--down", "--json", pg))
}

// A rule that is changed, or loosened, is not changed without a word.
func TestProtectSaysTheRule(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	db.exec(t, "CREATE TABLE inventory (sku text, \"Due\" date)")
	protect := func(resource string, more ...string) string {
		return ok(t, append([]string{"protect", "inventory", "--trigger", "--postgres", db.url, "--resource", resource}, more...)...)
	}
	const first, second = "'inventory:' || sku", `'é\' || NEW."Due"`
	require.Equal(t, "inventory is protected: writes need the fence "+first+"\n", protect(first))
	require.Equal(t, "inventory is protected: writes need the fence "+first+"\n", protect(first), "again")
	require.Equal(t, "inventory is protected: writes need the fence "+second+" (before: the fence "+first+")\n", protect(second))
	require.Equal(t, "inventory is protected: writes need any fence (before: the fence "+second+")\n", protect(""))
	require.JSONEq(t, `{"table":"inventory","protected":true,"trigger":true,"resource":"sku","resource_before":""}`, protect("sku", "--json"))
	require.Contains(t, ok(t, "protect", "inventory", "--resource=", "--postgres", db.url), "its trigger from before stays as it was: writes need the fence sku")
}

func TestProtectRefusesWhatItCannotProtect(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	db.exec(t, "CREATE TABLE inventory (sku text, stock int); CREATE VIEW shelf AS SELECT * FROM inventory")
	before := db.shape(t)
	fails(t, 2, `run "fencectl migrate up" first`, "protect", "inventory", "--resource=sku", "--trigger", pg)
	ok(t, "migrate", "up", pg)
	for _, c := range []struct{ says, table, resource string }{
		{"there is no table inventroy", "inventroy", "sku"},
		{"there is no table nowhere.inventory", "nowhere.inventory", "sku"},
		{"it is a view; protect the tables that it reads", "shelf", "sku"},
		{"inventory has no column skuu", "inventory", "skuu"},
		{"", "inventory", "sku ||"},
		{"", "inventory", "no_such_function(sku)"},
		{"is NULL for every row", "inventory", "sku || NULL"},
		{"is declared volatile", "inventory", "sku || random()"},
		{"is declared volatile", "inventory", "NEW.sku || clock_timestamp()"},
		{"it belongs to the fence schema", "fencing.fence", "resource"},
		{"system catalog", "pg_catalog.pg_class", "relname"},
	} {
		fails(t, 2, c.says, "protect", c.table, "--resource="+c.resource, "--trigger", pg)
		require.Equal(t, before, db.shape(t), "half done: %s", c.table)
	}
	fails(t, 2, "there is no table inventroy", "protect", "inventroy", "--down", pg)
}

// What CREATE FUNCTION is not told it takes for volatile.
func TestProtectTakesALabelledFunctionAndARuleThatIsThere(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	pg := "--postgres=" + db.url
	ok(t, "migrate", "up", pg)
	db.exec(t, "CREATE TABLE inventory (sku text); CREATE FUNCTION named(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN $1; END $$")
	protect := []string{"protect", "inventory", "--resource=named(sku)", "--trigger", pg}
	fails(t, 2, "ALTER its function to be IMMUTABLE or STABLE", protect...)
	db.exec(t, "ALTER FUNCTION named STABLE")
	ok(t, protect...)
	db.exec(t, "ALTER FUNCTION named VOLATILE")
	ok(t, protect...)
}

func TestProtectByAnOwnerWhoMayNotRead(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ok(t, "migrate", "up", "--postgres="+db.url)
	owner := newRole(t, db, "")
	db.exec(t, "CREATE TABLE inventory (sku text); ALTER TABLE inventory OWNER TO "+owner+"; REVOKE SELECT ON inventory FROM "+owner)
	ok(t, "protect", "inventory", "--resource=sku", "--trigger", "--postgres="+as(t, db.url, owner, ""))
	require.Equal(t, "UF004", db.sqlState(t, "INSERT INTO inventory VALUES ('a')"))
}

func TestProtectBySomeoneWhoMayNot(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ok(t, "migrate", "up", "--postgres="+db.url)
	user := newRole(t, db, "")
	db.exec(t, "CREATE TABLE inventory (sku text)")
	r := fails(t, 3, "must be owner of table inventory", "protect", "inventory", "--resource=sku", "--trigger", "--postgres="+as(t, db.url, user, ""))
	require.Contains(t, r.stderr, "SQLSTATE 42501")
	fails(t, 3, "SQLSTATE 42501", "migrate", "down", "--postgres="+as(t, db.url, user, ""))
}

func TestProtectPrints(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ok(t, "migrate", "up", "--postgres="+db.url)
	db.exec(t, `CREATE TABLE "Odd Table" (sku text)`)
	before := db.shape(t)
	args := func(more ...string) []string {
		return append([]string{"protect", `"Odd Table"`, "--resource='inventory:' || sku", "--trigger", "--print"}, more...)
	}
	db.psql(t, ok(t, args()...), "-1")
	require.Equal(t, "UF004", db.sqlState(t, `INSERT INTO "Odd Table" VALUES ('a')`))
	db.psql(t, ok(t, args("--down")...), "-1")
	require.Equal(t, before, db.shape(t))

	var sql struct{ SQL string }
	require.NoError(t, json.Unmarshal([]byte(ok(t, args("--json")...)), &sql))
	require.Equal(t, ok(t, args()...), sql.SQL)

	for _, tool := range migrations.Tools() {
		dir := filepath.Join(t.TempDir(), string(tool))
		ok(t, args("--tool="+string(tool), "--dir="+dir, "--number=7")...)
		files := readDir(t, dir)
		require.Regexp(t, `^(0*7_)?protect_odd_table[._a-z]*sql$`, sorted(files)[0])
		up, down := ways[string(tool)](files)
		db.psql(t, up, "-1")
		require.Equal(t, "UF004", db.sqlState(t, `INSERT INTO "Odd Table" VALUES ('a')`), tool)
		if down == "" {
			down = ok(t, args("--down")...)
		}
		db.psql(t, down, "-1")
		require.Equal(t, before, db.shape(t), tool)
	}
}
