package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

func TestTableNamesAreReadAsPostgresReadsThem(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, s := range []string{
		"inventory", "Inventory", "INVENTORY", "public.inventory", "Public.Inventory", `"Inventory"`, `"app"."Odd Table"`, `app."x.y"`, `"a""b"`,
		`"a.b".c`, "_x1", "x$y", "Überß", `"Ü b"`, "日本", `"{{"`, `"'"`, `"%s"`, `"--"`, `"a;b"`, strings.Repeat("x", 63), `"select"`,
	} {
		parts, canonical, err := migrations.ParseTable(s)
		require.NoError(t, err, s)
		var want []string
		require.NoError(t, db.QueryRow(t.Context(), "SELECT parse_ident($1)", s).Scan(&want))
		require.Equal(t, want, parts, s)
		require.NoError(t, db.QueryRow(t.Context(), "SELECT parse_ident($1)", canonical).Scan(&want))
		require.Equal(t, parts, want, canonical)
		db.exec(t, "SELECT to_regclass("+migrations.QuoteLiteral(canonical)+")")
	}
}

func TestNamesAreQuotedOnlyWhereTheyNeedIt(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, name := range []string{"inventory", "Inventory", "a b", `a"b`, "1a", "a1", "_", "a$", "é", "select", "user", "between", "values", "system_user"} {
		quoted := migrations.QuoteIdent(name)
		db.exec(t, "CREATE TEMP TABLE "+quoted+" ("+quoted+" int)")
		require.Equal(t, name, db.query(t, "SELECT attname FROM pg_attribute WHERE attnum = 1 AND attrelid = to_regclass("+migrations.QuoteLiteral(quoted)+")"))
	}
	require.Equal(t, "between", migrations.QuoteIdent("between"))
}

func TestReservedWordsAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	rows, err := db.Query(t.Context(), "SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T')")
	require.NoError(t, err)
	var word string
	for rows.Next() {
		require.NoError(t, rows.Scan(&word))
		require.Equal(t, `"`+word+`"`, migrations.QuoteIdent(word))
	}
	require.NoError(t, rows.Err())
}

func TestProtectRefusesWhatIsNoTableName(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"":                          "the name is empty",
		" ":                         `unexpected " " where a name should be`,
		"a b":                       `unexpected " " after the name`,
		"inventory;drop table x":    `unexpected ";" after the name`,
		"Odd-Table":                 `unexpected "-" after the name; a name that is not of letters, digits and _ needs double quotes`,
		"a.":                        "the name ends with a dot",
		".a":                        `unexpected "." where a name should be`,
		"a..b":                      `unexpected "." where a name should be`,
		"db.app.inventory":          "more parts than schema.table",
		`"open`:                     "does not end",
		`""`:                        "the name is empty",
		"1a":                        `unexpected "1a" where a name should be`,
		"'a'":                       `unexpected "'a'" where a name should be`,
		`U&"a"`:                     "where a name should be",
		"$$a$$":                     "where a name should be",
		"a--b":                      "after the name",
		"\"a\nb\"":                  "has a control character",
		"\"a\x00b\"":                "has a control character",
		"\xff":                      "is not valid UTF-8",
		strings.Repeat("x", 64):     "has 64 bytes, Postgres keeps 63",
		"pg_catalog.pg_class":       "it is a system catalog",
		"information_schema.tables": "it is a system catalog",
		"pg_toast.x":                "it is a system catalog",
		"pg_temp.x":                 "it is a temporary table",
		"pg_temp_3.x":               "it is a temporary table",
		"Fencing.Fence":             "it belongs to the fence schema",
	} {
		_, _, err := migrations.Protect(table, migrations.ProtectOptions{})
		require.ErrorContains(t, err, want, "%q", table)
		require.ErrorContains(t, err, "migrations: protect ", "%q", table)
	}
}

func TestProtectRefusesNonsense(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]migrations.ProtectOptions{
		"neither a column nor a trigger":  {NoColumn: true},
		"lock timeout -1s is not between": {LockTimeout: -time.Second},
		"lock timeout 1µs is not between": {LockTimeout: time.Microsecond},
		"column \"a\\x00b\"":              {Column: "a\x00b"},
		`schema "pg_x" belongs to`:        {Schema: "pg_x"},
		`resource "a;b"`:                  {Resource: "a;b"},
	} {
		_, _, err := migrations.Protect("inventory", o)
		require.ErrorContains(t, err, want)
	}
}

func TestTheColumnCostsNoRewriteAndGoesAgain(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"inventory", "Inventory", `"app"."Odd Table"`, `app."$fencing$ '%{{"`} {
		db := newDatabase(t)
		db.exec(t, `CREATE SCHEMA app; CREATE TABLE inventory (sku text PRIMARY KEY); CREATE TABLE app."Odd Table" (id int); CREATE TABLE app."$fencing$ '%{{" ();
			INSERT INTO inventory SELECT generate_series(1, 100)::text`)
		before, dump := db.catalog(t), db.dump(t)
		_, name, err := migrations.ParseTable(table)
		require.NoError(t, err)
		file := "SELECT pg_relation_filenode(" + migrations.QuoteLiteral(name) + ")::text"
		node := db.query(t, file)
		for _, column := range []string{"", "Fence Token", "select", "o'clock", "$fencing$"} {
			up, down := protect(t, table, migrations.ProtectOptions{Column: column})
			db.exec(t, up)
			protected := db.catalog(t)
			require.NotEqual(t, before, protected)
			db.exec(t, up) // again
			require.Equal(t, protected, db.catalog(t))
			db.exec(t, "DO 'BEGIN ASSERT (SELECT bool_and("+strings.ReplaceAll(migrations.QuoteIdent(or(column, "fence_token")), "'", "''")+" = 0) IS NOT FALSE FROM "+strings.ReplaceAll(name, "'", "''")+"); END'")
			require.Equal(t, node, db.query(t, file), "the rows stayed where they were")
			db.exec(t, down)
			require.Equal(t, before, db.catalog(t))
			db.exec(t, down) // again
		}
		require.Equal(t, dump, db.dump(t))
		require.Equal(t, node, db.query(t, file))
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func TestTheCommentOnTheColumnSaysWhoStampsIt(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	comment := "SELECT col_description('inventory'::regclass, (SELECT attnum FROM pg_attribute WHERE attrelid = 'inventory'::regclass AND attname = 'fence_token'))"
	const before = "fencing: token of the fence under which the row was last written" // of tables that were protected long ago
	for resource, after := range map[string]string{"": "", "'inventory:' || sku": "; of resource 'inventory:' || sku"} {
		db.exec(t, "CREATE TABLE inventory (sku text)")
		catalog := db.catalog(t)
		up, down := protect(t, "inventory", migrations.ProtectOptions{Trigger: true, Resource: resource})
		db.exec(t, up)
		require.Equal(t, before+" by the row rule: UpdateRow of pgguard, or ModeRow of gormguard; other writes leave it as it is"+after, db.query(t, comment))
		db.exec(t, "COMMENT ON COLUMN inventory.fence_token IS '"+before+"'")
		db.exec(t, down)
		require.Equal(t, catalog, db.catalog(t))
		db.exec(t, "DROP TABLE inventory")
	}
}

func TestAColumnThatWasThereBeforeStays(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, "CREATE TABLE inventory (sku text, fence_token bigint NOT NULL)")
	before := db.catalog(t)
	up, down := protect(t, "inventory", migrations.ProtectOptions{})
	db.exec(t, up)
	db.exec(t, down)
	require.Equal(t, before, db.catalog(t))
}

func TestAColumnOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, "CREATE DOMAIN token AS bigint")
	for _, column := range []string{"integer NOT NULL", "text NOT NULL", "bigint", "token NOT NULL", "bigint NOT NULL GENERATED ALWAYS AS (1) STORED", "bigint GENERATED ALWAYS AS IDENTITY"} {
		db.exec(t, "CREATE TABLE inventory (fence_token "+column+")")
		before := db.catalog(t)
		up, _ := protect(t, "inventory", migrations.ProtectOptions{})
		err := db.refused(t, "42809", up)
		require.Equal(t, "fencing: inventory cannot be protected: its column fence_token is there already and not a plain bigint NOT NULL; choose another name for the version column, or go without it", err.Message)
		require.Equal(t, before, db.catalog(t))
		db.exec(t, "DROP TABLE inventory")
	}
}

func TestProtectGivesUpOnALockedTable(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	reader, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), "SELECT FROM inventory")
	require.NoError(t, err)
	up, _ := protect(t, "inventory", migrations.ProtectOptions{LockTimeout: 50 * time.Millisecond})
	db.refused(t, "55P03", up)
	require.NoError(t, reader.Rollback(t.Context()))
	db.exec(t, up)
	require.Equal(t, "0", db.query(t, "SHOW lock_timeout"), "the session keeps its own")
}

func TestProtectRefusesWhatIsNotATableToGuard(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, `CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent);
		CREATE TABLE parts (id int) PARTITION BY LIST (id); CREATE TABLE part PARTITION OF parts DEFAULT;
		CREATE VIEW a_view AS SELECT 1 AS id; CREATE MATERIALIZED VIEW a_matview AS SELECT 1 AS id;
		CREATE TEMP TABLE a_temp (id int); CREATE SEQUENCE a_sequence; CREATE TYPE a_type AS (id int);
		CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
		CREATE FOREIGN TABLE a_foreign (id int) SERVER nowhere;
		CREATE TABLE half (id int) PARTITION BY LIST (id); CREATE FOREIGN TABLE far PARTITION OF half DEFAULT SERVER nowhere;
		CREATE TABLE taken (id int); CREATE TRIGGER fencing_update BEFORE UPDATE ON taken FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
		CREATE TABLE mother (id int); CREATE TABLE father (id int); CREATE TABLE between () INHERITS (mother); CREATE TABLE heir () INHERITS (between, father);
		CREATE TABLE diamond (id int); CREATE TABLE left_side () INHERITS (diamond); CREATE TABLE right_side () INHERITS (diamond); CREATE TABLE tip () INHERITS (left_side, right_side);
		CREATE TABLE pg_mine (id int)`)
	before := db.catalog(t)
	for table, want := range map[string]string{
		"missing":    "there is no such table",
		"nowhere.x":  "there is no such table",
		"a_view":     "it is a view; protect the tables that it reads",
		"a_matview":  "it is a materialized view; protect the tables that it reads",
		"a_foreign":  "it is a foreign table; protect it in the database that stores it",
		"a_temp":     "it is a temporary table, which no other session can write",
		"a_sequence": "it is not a table",
		"a_type":     "it is not a table",
		"pg_class":   "it is a system catalog",
		"part":       "it is a partition of parts; protect that",
		"child":      "it is a child of parent; protect that",
		"half":       "a part of it is a foreign table, which others write in another database",
		"taken":      "a trigger of another kind has the name of one that protects; rename it",
		"mother":     "a child of it is a child of another table too, and a row can be protected in one way only",
		"father":     "a child of it is a child of another table too, and a row can be protected in one way only",
	} {
		up, _ := protect(t, table, migrations.ProtectOptions{Trigger: true})
		err := db.refused(t, "42809", up)
		require.Equal(t, "fencing: "+table+" cannot be protected: "+want, err.Message)
		require.Equal(t, before, db.catalog(t), table)
	}
	db.exec(t, "SET search_path = fencing, public")
	up, _ := protect(t, "fence", migrations.ProtectOptions{})
	require.Contains(t, db.refused(t, "42809", up).Message, "it belongs to the fence schema")
	for _, table := range []string{"pg_mine", "diamond"} {
		up, _ = protect(t, table, migrations.ProtectOptions{Trigger: true})
		db.exec(t, up)
	}
	up, _ = protect(t, "mother", migrations.ProtectOptions{})
	db.exec(t, up)
}

func TestATriggerNeedsTheFenceSchema(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, "CREATE TABLE inventory (id int)")
	up, _ := protect(t, "inventory", migrations.ProtectOptions{Trigger: true})
	require.Contains(t, db.refused(t, "42809", up).Message, `the fence schema fencing is missing; run "fencectl migrate up" first`)
	for schema, command := range map[string]string{"other": "fencectl migrate up --schema other", "it's": `fencectl migrate up --schema 'it'\''s'`} {
		up, _ = protect(t, "inventory", migrations.ProtectOptions{Trigger: true, Schema: schema})
		require.Contains(t, db.refused(t, "42809", up).Message, `run "`+command+`" first`)
	}
	up, _ = protect(t, "inventory", migrations.ProtectOptions{})
	db.exec(t, up)
}

// Services that start together may all run it.
func TestProtectRunsBesideItself(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	for i := range 5 {
		table := fmt.Sprintf("items%d", i)
		db.exec(t, "CREATE TABLE "+table+" (id bigint PRIMARY KEY)")
		up, _, err := migrations.Protect(table, migrations.ProtectOptions{Trigger: true})
		require.NoError(t, err)
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			conn := connect(t, db.url)
			all.Go(func() { _, errs[i] = conn.Exec(t.Context(), "BEGIN;"+up+"COMMIT") })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
	}
}
