package migrations_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

var byRow = migrations.ProtectOptions{Trigger: true, Resource: "'inventory:' || sku"}

// newInventory has a table of three rows that need a fence each.
func newInventory(t *testing.T, o migrations.ProtectOptions) database {
	t.Helper()
	db := newFenced(t)
	db.exec(t, "CREATE TABLE inventory (sku text PRIMARY KEY, stock bigint NOT NULL); INSERT INTO inventory VALUES ('a', 1), ('b', 1), ('c', 1)")
	up, _ := protect(t, "inventory", o)
	db.exec(t, up)
	return db
}

func TestS38_AWriteOutsideOfItsFenceIsRefused(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	writes := []string{
		"UPDATE inventory SET stock = 2 WHERE sku = 'a'", "INSERT INTO inventory VALUES ('a', 9) ON CONFLICT (sku) DO UPDATE SET stock = 9",
		"INSERT INTO inventory VALUES ('d', 1)", "DELETE FROM inventory WHERE sku = 'a'", "UPDATE inventory SET sku = 'z' WHERE sku = 'a'",
		"MERGE INTO inventory i USING (VALUES ('a')) s (sku) ON i.sku = s.sku WHEN MATCHED THEN UPDATE SET stock = 5",
		"MERGE INTO inventory i USING (VALUES ('a')) s (sku) ON i.sku = s.sku WHEN MATCHED THEN DELETE",
		"MERGE INTO inventory i USING (VALUES ('d')) s (sku) ON i.sku = s.sku WHEN NOT MATCHED THEN INSERT VALUES ('d', 1)",
		"COPY inventory (sku, stock) FROM PROGRAM 'printf \"d\\t1\\n\"'",
		"WITH gone AS (DELETE FROM inventory WHERE sku = 'a' RETURNING sku) SELECT sku FROM gone",
		"DO 'BEGIN UPDATE inventory SET stock = 3 WHERE sku = ''a''; END'", "TRUNCATE inventory", "UPDATE inventory SET stock = stock",
	}
	for _, sql := range writes {
		want := " of public.inventory refused: the transaction has not entered the fence that the row needs ('inventory:' || sku); write through a guard"
		if sql == "TRUNCATE inventory" {
			want = "fencing: TRUNCATE of public.inventory: always refused where rows have their own fences; use DELETE"
		}
		require.Contains(t, db.refused(t, "UF004", sql).Message, want)
		require.Contains(t, db.refused(t, "UF004", db.holding(t, sql, "inventory:other")).Message, want)
	}
	require.Equal(t, "3", db.query(t, "SELECT sum(stock)::text FROM inventory"))
	for _, sql := range []string{
		"UPDATE inventory SET stock = 2 WHERE sku = 'a'", "INSERT INTO inventory VALUES ('a', 9) ON CONFLICT (sku) DO UPDATE SET stock = 9",
		"DELETE FROM inventory WHERE sku = 'a'", "COPY inventory (sku, stock) FROM PROGRAM 'printf \"a\\t1\\n\"'",
		"MERGE INTO inventory i USING (VALUES ('a')) s (sku) ON i.sku = s.sku WHEN MATCHED THEN UPDATE SET stock = 5",
	} {
		db.exec(t, db.holding(t, sql, "inventory:a"))
	}
}

func TestS38_PsqlIsRefusedUntilItEntersTheFence(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	update := "UPDATE inventory SET stock = stock + 10 WHERE sku = 'a';\n"
	out, err := db.psql(t, update)
	require.NoError(t, err, out)
	require.Contains(t, out, "ERROR:  UF004: fencing: UPDATE of public.inventory refused: the transaction has not entered the fence that the row needs ('inventory:' || sku)")
	require.Contains(t, out, "HINT:  By hand: call issue(resource, nonce) of the fence schema, and enter(resource, token, nonce) first in the transaction.")

	script := func(resource string) string {
		return `SELECT token, nonce FROM fencing.issue('` + resource + `', gen_random_uuid()::text) \gset
			BEGIN;
			SELECT fencing.enter('` + resource + `', :token, :'nonce');
			` + update + "COMMIT;\n"
	}
	out, err = db.psql(t, script("inventory:b"))
	require.NoError(t, err, out)
	require.Contains(t, out, "UF004")
	require.Equal(t, "1", db.query(t, "SELECT stock::text FROM inventory WHERE sku = 'a'"))

	out, err = db.psql(t, script("inventory:a"))
	require.NoError(t, err, out)
	require.Contains(t, out, "UPDATE 1")
	require.Equal(t, "11", db.query(t, "SELECT stock::text FROM inventory WHERE sku = 'a'"))
}

func TestAnEarlierTransactionsFenceIsGone(t *testing.T) {
	t.Parallel()
	for _, o := range []migrations.ProtectOptions{byRow, {Trigger: true}} {
		db := newInventory(t, o)
		db.exec(t, db.holding(t, "UPDATE inventory SET stock = 2 WHERE sku = 'a'", "inventory:a"))
		db.refused(t, "UF004", "UPDATE inventory SET stock = 3 WHERE sku = 'a'") // the setting is '' now, not NULL
		db.refused(t, "UF004", "TRUNCATE inventory")
	}
}

func TestWithoutAResourceAnyFenceWillDo(t *testing.T) {
	t.Parallel()
	db := newInventory(t, migrations.ProtectOptions{Trigger: true})
	for _, sql := range []string{
		"INSERT INTO inventory VALUES ('d', 1)", "UPDATE inventory SET stock = 2", "DELETE FROM inventory WHERE sku = 'a'", "TRUNCATE inventory",
	} {
		require.Contains(t, db.refused(t, "UF004", sql).Message, " of public.inventory refused: the transaction has not entered a fence for it; write through a guard")
		db.exec(t, db.holding(t, sql, "anything"))
	}
}

func TestChangingTheKeyNeedsBothFences(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	move := "UPDATE inventory SET sku = 'z' WHERE sku = 'a'"
	for _, held := range [][]string{{"inventory:a"}, {"inventory:z"}} {
		db.refused(t, "UF004", db.holding(t, move, held...))
	}
	db.exec(t, db.holding(t, move, "inventory:z", "inventory:other", "inventory:a"))
}

func TestTruncateIsRefusedWhereRowsNeedTheirFence(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	db.exec(t, "CREATE TABLE line (sku text REFERENCES inventory)")
	for _, sql := range []string{"TRUNCATE inventory CASCADE", "TRUNCATE line, inventory"} {
		db.refused(t, "UF004", db.holding(t, sql, "inventory:a", "inventory:b", "inventory:c"))
	}
}

func TestOnConflictNeedsTheFenceOfWhatIsWritten(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	db.exec(t, db.holding(t, "INSERT INTO inventory VALUES ('b', 9) ON CONFLICT DO NOTHING", "inventory:a"))
	db.exec(t, "ALTER TABLE inventory ADD COLUMN code int UNIQUE")
	db.exec(t, db.holding(t, "UPDATE inventory SET code = 7 WHERE sku = 'a'", "inventory:a"))
	upsert := "INSERT INTO inventory VALUES ('new', 1, 0, 7) ON CONFLICT (code) DO UPDATE SET stock = 100"
	db.exec(t, db.holding(t, upsert, "inventory:a"))
	db.refused(t, "UF004", db.holding(t, upsert, "inventory:new"))
	require.Equal(t, "100", db.query(t, "SELECT stock::text FROM inventory WHERE sku = 'a'"))
}

// The triggers run after the row is written, because a BEFORE trigger that comes
// later by its name would still change what they have looked at.
func TestARowThatAnotherTriggerChangesNeedsTheFenceOfTheResult(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	db.exec(t, `CREATE FUNCTION rename() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.sku := ''b''; RETURN NEW; END';
		CREATE TRIGGER zzz BEFORE INSERT OR UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION rename();
		ALTER TABLE inventory DROP CONSTRAINT inventory_pkey`)
	for _, sql := range []string{"INSERT INTO inventory VALUES ('a', 9)", "UPDATE inventory SET stock = 9 WHERE sku = 'a'"} {
		db.refused(t, "UF004", db.holding(t, sql, "inventory:a"))
	}
	db.exec(t, db.holding(t, "UPDATE inventory SET stock = 9 WHERE sku = 'a'", "inventory:a", "inventory:b"))
}

func TestCascadesFromAnUnprotectedParentAreRefused(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, `CREATE TABLE account (id int PRIMARY KEY);
		CREATE TABLE entry (id int PRIMARY KEY, account int REFERENCES account ON DELETE CASCADE ON UPDATE CASCADE);
		CREATE TABLE note (id int PRIMARY KEY, account int REFERENCES account ON DELETE SET NULL);
		INSERT INTO account VALUES (1), (2), (3); INSERT INTO entry VALUES (1, 1), (2, 2); INSERT INTO note VALUES (3, 3)`)
	for _, table := range []string{"entry", "note"} {
		up, _ := protect(t, table, migrations.ProtectOptions{Trigger: true, Resource: "'account:' || coalesce(account::text, 'none')"})
		db.exec(t, up)
	}
	for sql, resources := range map[string][]string{
		"DELETE FROM account WHERE id = 1":       {"account:1"},
		"UPDATE account SET id = 9 WHERE id = 2": {"account:2", "account:9"},
		"DELETE FROM account WHERE id = 3":       {"account:3", "account:none"},
	} {
		db.refused(t, "UF004", sql)
		db.refused(t, "UF004", db.holding(t, sql, "account:other"))
		db.exec(t, db.holding(t, sql, resources...))
	}
}

func TestReplicaModeDoesNotOpenTheTable(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	db.exec(t, "SET session_replication_role = replica")
	for _, sql := range []string{"INSERT INTO inventory VALUES ('d', 1)", "UPDATE inventory SET stock = 2", "DELETE FROM inventory", "TRUNCATE inventory"} {
		db.refused(t, "UF004", sql)
	}
}

func TestS34_WhatWasEnteredInsideASavepointGoesWithIt(t *testing.T) {
	t.Parallel()
	for _, o := range []migrations.ProtectOptions{byRow, {Trigger: true}} {
		db := newInventory(t, o)
		db.exec(t, "SELECT fencing.raise('inventory:a', 1, 'n'); SELECT fencing.raise('inventory:b', 1, 'n')")
		update := "; UPDATE inventory SET stock = stock + 1 WHERE sku = 'a'"
		db.refused(t, "UF004", "BEGIN; SAVEPOINT s; SELECT fencing.enter('inventory:a', 1, 'n')"+update+"; ROLLBACK TO s"+update)
		db.exec(t, "BEGIN; SAVEPOINT s; SELECT fencing.enter('inventory:a', 1, 'n'); RELEASE s"+update+"; COMMIT")
		db.exec(t, "BEGIN; SELECT fencing.enter('inventory:a', 1, 'n'); SAVEPOINT s; SELECT fencing.enter('inventory:b', 1, 'n'); ROLLBACK TO s"+update+"; COMMIT")
	}
}

func TestS36_DeleteAndInsertStillNeedTheFence(t *testing.T) {
	t.Parallel()
	db := newInventory(t, byRow)
	db.exec(t, "SELECT fencing.raise('inventory:a', 33, 'A'); SELECT fencing.raise('inventory:a', 34, 'B')")
	db.exec(t, "BEGIN; SELECT fencing.enter('inventory:a', 34, 'B'); DELETE FROM inventory WHERE sku = 'a'; COMMIT")
	insert := "INSERT INTO inventory VALUES ('a', 1)"
	db.refused(t, "UF004", insert)
	db.refused(t, "UF001", "BEGIN; SELECT fencing.enter('inventory:a', 33, 'A'); "+insert)
	require.Equal(t, "0", db.query(t, "SELECT count(*)::text FROM inventory WHERE sku = 'a'"))
}

func TestARowWithoutAUsableNameIsRefused(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "CREATE TABLE inventory (sku text)")
	up, _ := protect(t, "inventory", migrations.ProtectOptions{Trigger: true, Resource: "sku"})
	db.exec(t, up)
	for _, sku := range []string{"NULL", "''", "E'a\\nb'", "E'a\\nbb'", "E'\\n'", "E'a\\n'", "E'\\na'", "'A'", "'a '", "'%'", "'b'"} {
		db.refused(t, "UF004", db.holding(t, "INSERT INTO inventory VALUES ("+sku+")", "a", "bb"))
	}
	db.exec(t, db.holding(t, "INSERT INTO inventory VALUES ('bb'), ('a')", "a", "bb"))
	db.refused(t, "UF004", "BEGIN; SET LOCAL fencing.held = ''; INSERT INTO inventory VALUES ('')")
}

func TestResourcesOfAnyTypeAndCollation(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, `CREATE COLLATION ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TYPE place AS (city text, zip int);
		CREATE TABLE thing (id bigint, name text COLLATE ignore_case, code char(5), uid uuid, kind text COLLATE "POSIX", at place, tags text[],
			key text GENERATED ALWAYS AS ('key:' || id) STORED)`)
	for expr, resource := range map[string]string{
		"id": "7", "name": "Widget", "code": "ab", "uid": "00000000-0000-0000-0000-000000000007", "name || kind": "Widgetx",
		"(at).city": "Bern", "tags[1]": "first", "key": "key:7", "coalesce(kind, name)": "x", "format('%s/%s', id, name)": "7/Widget",
	} {
		up, down := protect(t, "thing", migrations.ProtectOptions{Trigger: true, NoColumn: true, Resource: expr})
		db.exec(t, up)
		insert := "INSERT INTO thing VALUES (7, 'Widget', 'ab', '00000000-0000-0000-0000-000000000007', 'x', ROW('Bern', 3000), '{first,second}')"
		db.exec(t, db.holding(t, insert, resource))
		db.refused(t, "UF004", db.holding(t, insert, strings.ToUpper(resource)+"X"))
		db.exec(t, down)
	}
}

func TestTriggerDownRestoresTheTable(t *testing.T) {
	t.Parallel()
	for _, o := range []migrations.ProtectOptions{
		{Trigger: true}, byRow, {Trigger: true, NoColumn: true}, {Trigger: true, Resource: `'$fencing$ $sql$ ''%s'' {{' || "sku"`, Column: "V"},
	} {
		db := newFenced(t)
		db.exec(t, `CREATE TABLE inventory (sku text PRIMARY KEY, stock bigint NOT NULL);
			CREATE TRIGGER mine BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`)
		before, dump := db.catalog(t), db.dump(t)
		up, down := protect(t, "inventory", o)
		db.exec(t, up)
		protected := db.catalog(t)
		db.exec(t, up)
		require.Equal(t, protected, db.catalog(t), "the same SQL again")
		db.exec(t, down)
		require.Equal(t, before, db.catalog(t))
		require.Equal(t, dump, db.dump(t))
	}
}

func TestDownLeavesTriggersThatProtectHasNotMade(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, `CREATE TABLE inventory (sku text, stock int);
		CREATE TRIGGER never_negative BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.stock < 0) EXECUTE FUNCTION fencing.refuse_write()`)
	before := db.catalog(t)
	up, down := protect(t, "inventory", byRow)
	db.exec(t, up)
	db.exec(t, down)
	require.Equal(t, before, db.catalog(t))
}

func TestProtectAgainChangesTheResource(t *testing.T) {
	t.Parallel()
	db := newInventory(t, migrations.ProtectOptions{Trigger: true})
	update := "UPDATE inventory SET stock = 2 WHERE sku = 'a'"
	db.exec(t, db.holding(t, update, "anything"))
	up, _ := protect(t, "inventory", byRow)
	db.exec(t, up)
	db.refused(t, "UF004", db.holding(t, update, "anything"))
	db.exec(t, db.holding(t, update, "inventory:a"))
}

func TestAMisreadExpressionFailsWhenItIsInstalled(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "CREATE TABLE inventory (sku text, day date)")
	before := db.catalog(t)
	for expr, code := range map[string]string{
		"skuu": "42703", "'x' || SKU2": "42703", "timestamp with time zone '2026-01-01'": "42601",
		"NEW.missing": "42703", "sum(stock)": "42703", "count(*)": "42803", "sku -> ": "42601", "12abc": "42601", "$sku": "42601", "inventory": "42703",
		"ctid": "42703 ", "row_number() OVER ()": "42P20", "generate_series(1, 2)": "0A000", "f(sku)": "42883", "x => sku": "42601",
	} {
		up, _ := protect(t, "inventory", migrations.ProtectOptions{Trigger: true, Resource: expr})
		_, err := db.Exec(t.Context(), up)
		if code == "42703 " { // a system column, which an AFTER trigger may use
			require.NoError(t, err, expr)
			_, down := protect(t, "inventory", migrations.ProtectOptions{Trigger: true})
			db.exec(t, down)
			continue
		}
		require.ErrorContains(t, err, "(SQLSTATE "+code+")", expr)
		require.Equal(t, before, db.catalog(t), expr)
	}
}
