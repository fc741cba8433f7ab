package rawsql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/internal/sqltext"
)

// writes reports whether a text of SQL counts as a write to a guarded table.
func writes(sql string, d sqltext.Dialect, table string) bool {
	tables := rawsql.NewTables()
	tables.Add(table, "fence_token")
	return rawsql.Classify(sql, d, tables).Table != ""
}

func TestWritesAreToldFromReads(t *testing.T) {
	t.Parallel()
	const (
		pg = sqltext.Postgres
		my = sqltext.MySQL
		lt = sqltext.SQLite
	)
	all := []sqltext.Dialect{pg, my, lt}
	for _, tt := range []struct {
		sql      string
		dialects []sqltext.Dialect
		write    bool
	}{
		{"SELECT * FROM items", all, false},
		{"DELETE i.*/*'*/FROM orders o, items/*'*/i", []sqltext.Dialect{my}, true},
		{"SELECT /*!50000 SQL_NO_CACHE */* FROM items", []sqltext.Dialect{my}, false},
		{"SELECT * FROM items FOR UPDATE", all, false},
		{"SELECT * FROM items FOR NO KEY UPDATE OF items", all, false},
		{"SELECT replace(note, 'a', 'b'), 'UPDATE items' FROM items", all, false},
		{"SELECT 'it''s' FROM items -- UPDATE items SET", all, false},
		{"/* UPDATE items */ SELECT 1 FROM items", all, false},
		{"UPDATE orders SET items = 3 WHERE items = 2", all, false},
		{`UPDATE "orders" SET "items"=$1,"x"=$2 WHERE "orders"."items" = $3`, all, false},
		{"INSERT INTO orders (id, items) VALUES (1, 2) ON CONFLICT (items) DO UPDATE SET items = 3 RETURNING items", all, false},
		{"DELETE FROM orders WHERE items IS DISTINCT FROM items", all, false},
		{"CREATE TABLE items (id int, x int REFERENCES y ON DELETE CASCADE ON UPDATE CASCADE)", all, false},
		{"CREATE INDEX i ON items (x)", all, false},
		{"CREATE OR REPLACE VIEW items AS SELECT * FROM orders", all, false},
		{"ALTER TABLE items ADD COLUMN x int", all, false},
		{"ALTER TABLE items DROP CONSTRAINT x", all, false},
		{"ALTER TABLE items ALTER COLUMN x DROP NOT NULL", all, false},
		{"DROP INDEX items_x", all, false},
		{"CREATE TRIGGER t AFTER UPDATE ON items BEGIN UPDATE items SET x = 1; DELETE FROM items; END", []sqltext.Dialect{my, lt}, false},
		{"EXPLAIN SELECT * FROM items", all, false},
		{"SAVEPOINT items", all, false},
		{"UPDATE items_old SET x = 1", all, false},
		{"INSERT INTO log SELECT * FROM items", all, false},
		{"INSERT INTO log (id) SELECT id FROM items WHERE x = 'SET'", all, false},
		{"REPLACE INTO log SELECT * FROM items", []sqltext.Dialect{my, lt}, false},
		{"INSERT INTO orders (a, items) VALUES (1, 2) ON DUPLICATE KEY UPDATE a = VALUES(a), items = VALUES(items)", all, false},
		{"UPDATE orders SET x = 1 WHERE item_id IN (SELECT id FROM items JOIN a ON a.id = items.id, items i FOR UPDATE)", all, false},
		{"DELETE FROM orders WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.id = orders.item_id)", all, false},
		{"UPDATE orders SET x = 1 FROM items, a WHERE items.id = orders.item_id", []sqltext.Dialect{pg, lt}, false},
		{"DELETE FROM orders USING items WHERE items.id = orders.item_id", []sqltext.Dialect{pg}, false},
		{"MERGE INTO orders USING items ON true WHEN MATCHED THEN DELETE", []sqltext.Dialect{pg}, false},
		{"WITH u AS (UPDATE orders SET x=1 RETURNING item_id) SELECT * FROM items JOIN u ON true", all, false},
		{"SELECT i.update, i.replace, i.delete FROM items i", all, false},
		{`SELECT * FROM items WHERE note LIKE ? ESCAPE '\' AND deleted_at IS NULL FOR UPDATE`, []sqltext.Dialect{pg, lt}, false},
		{`SELECT * FROM items WHERE note LIKE ? ESCAPE '\' AND deleted_at IS NULL`, all, false},
		{`SELECT * FROM items WHERE note LIKE ? ESCAPE '\\' AND deleted_at IS NULL FOR UPDATE`, all, false},
		{"SELECT /*!40001 SQL_NO_CACHE */ * FROM items WHERE updated_at > 1", []sqltext.Dialect{my}, false},
		{"SET STATEMENT max_statement_time=1 FOR SELECT * FROM items", []sqltext.Dialect{my}, false},
		{"COPY items TO STDOUT", []sqltext.Dialect{pg}, false},
		{"COPY (SELECT * FROM items) TO STDOUT", []sqltext.Dialect{pg}, false},
		{"DO RELEASE_LOCK('migrate_items')", []sqltext.Dialect{my}, false},
		{"CALL refresh_items_view()", all, false},
		{"CREATE TABLE log AS SELECT * FROM items", all, false},
		{"CREATE POLICY p ON items FOR UPDATE USING (true)", []sqltext.Dialect{pg}, false},
		{"CREATE TRIGGER t BEFORE INSERT OR UPDATE ON items EXECUTE FUNCTION f()", []sqltext.Dialect{pg}, false},
		{"CREATE DEFINER=a@b PROCEDURE p() l: BEGIN IF 1 THEN UPDATE items SET x = 1; END IF; DELETE FROM items; END l; SELECT 1", []sqltext.Dialect{my}, false},
		{"ALTER TABLE items RENAME COLUMN a TO b", all, true},
		{"ALTER TABLE items RENAME INDEX a TO b, ALGORITHM=COPY", []sqltext.Dialect{my}, false},
		{"ALTER TABLE items ADD COLUMN x int DEFAULT 7", all, false},
		{"ALTER TABLE items MODIFY COLUMN x bigint", []sqltext.Dialect{my}, false},
		{`ALTER TABLE "items" ALTER COLUMN "x" TYPE text`, []sqltext.Dialect{pg}, false},
		{`ALTER TABLE "items" ALTER COLUMN "x" TYPE timestamp(3) with time zone USING "x"::timestamp(3) with time zone`, []sqltext.Dialect{pg}, false},
		{`ALTER TABLE "items" ALTER COLUMN "x" TYPE boolean USING "x"::int::boolean`, []sqltext.Dialect{pg}, false}, // GORM's
		{"ALTER TABLE items ADD CONSTRAINT u UNIQUE USING INDEX i", []sqltext.Dialect{pg}, false},

		{"GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE items TO app", all, false},
		{"REVOKE UPDATE ON TABLE items FROM app", all, false},
		{"EXPLAIN UPDATE items SET x = 1", all, false},
		{"CHECKSUM TABLE items", []sqltext.Dialect{my}, false},
		{"UPDATE items.orders SET x = 1", all, false}, // a schema
		{`INSERT INTO "items" . "orders" VALUES (1)`, all, false},
		{"DELETE FROM orders WHERE EXTRACT(YEAR FROM items) < 2020", all, false},
		{"UPDATE orders o JOIN x ON x.kind IN ('a', 'items', items) AND COALESCE(x.items, items) SET o.y = 1", []sqltext.Dialect{my}, false},
		{"DELETE o FROM orders o JOIN x ON x.kind IN (1, items)", []sqltext.Dialect{my}, false},

		{"UPDATE items SET x = 1", all, true},
		{"EXPLAIN (ANALYZE, VERBOSE) UPDATE items SET x=1", []sqltext.Dialect{pg}, true},
		{"UPDATE items.items SET x=1", all, true},
		{"UPDATE value.items SET x=1", all, true},
		{"INSERT INTO conflict.items VALUES (1)", all, true},
		{"DELETE FROM by.items", []sqltext.Dialect{pg}, true},
		{"DELETE items.* FROM items JOIN a", []sqltext.Dialect{my}, true},
		{"UPDATE a JOIN (b, items) ON a.id = b.id SET items.x=1", []sqltext.Dialect{my}, true},
		{"UPDATE (a, items) SET items.x=1", []sqltext.Dialect{my}, true},
		{"DELETE FROM orders WHERE id IN (WITH d AS (DELETE FROM items RETURNING id) SELECT id FROM d)", []sqltext.Dialect{pg}, true},
		{"ALTER TABLE items CHANGE COLUMN fence_token x bigint", []sqltext.Dialect{my}, true},
		{"update\titems\nset x=1", all, true},
		{"UPDATE/**/items/**/SET x=1", all, true},
		{"-- note\nUPDATE items SET x=1", all, true},
		{"-- note\rUPDATE items SET x=1", []sqltext.Dialect{pg}, true}, // the end of a line there
		{"WITH a AS (SELECT 1) UPDATE \ufeffitems SET x=1", []sqltext.Dialect{lt}, true},
		{"CREATE OR REPLACE TABLE items (id int)", []sqltext.Dialect{my}, true},
		{"UPDATE app.items SET x=1", all, true},
		{`UPDATE "app"."Items" i SET x=1`, all, true},
		{"UPDATE `items` SET x=1", all, true},
		{"UPDATE [items] SET x=1", []sqltext.Dialect{lt}, true},
		{"UPDATE ONLY items SET x=1", []sqltext.Dialect{pg}, true},
		{"UPDATE a, items SET x=1", all, true},
		{"UPDATE a JOIN items ON a.id = items.id SET items.x=1", all, true},
		{"UPDATE OR REPLACE items SET x=1", []sqltext.Dialect{lt}, true},
		{"INSERT INTO items VALUES (1)", all, true},
		{"INSERT OR IGNORE INTO items VALUES (1)", all, true},
		{"REPLACE INTO items VALUES (1)", all, true},
		{"REPLACE items SET x = 1", []sqltext.Dialect{my}, true},
		{"DELETE FROM items", all, true},
		{"DELETE items FROM a JOIN items", all, true},
		{"DELETE i FROM a JOIN items i", all, true},
		{"MERGE INTO items USING a ON true WHEN MATCHED THEN DELETE", all, true},
		{"TRUNCATE a, items", all, true},
		{"TRUNCATE TABLE items", all, true},
		{"COPY items FROM STDIN", all, true},
		{"WITH x AS (UPDATE items SET x=1 RETURNING *) SELECT * FROM x", all, true},
		{"WITH x AS (SELECT 1) DELETE FROM items", all, true},
		{"EXPLAIN ANALYZE UPDATE items SET x=1", all, true},
		{"SELECT 1; UPDATE items SET x=1", all, true},
		{"PREPARE p AS DELETE FROM items", all, true},
		{"DO $$ BEGIN UPDATE items SET x=1; END $$", all, true},
		{"CALL fill('items')", all, true},
		{"EXECUTE IMMEDIATE 'DELETE FROM items'", all, true},
		{"frobnicate items", all, true},
		{"LOAD DATA INFILE 'x' INTO TABLE items", all, true},
		{"DROP TABLE IF EXISTS items CASCADE", all, true},
		{"ALTER TABLE items DROP COLUMN x", all, true},
		{"ALTER TABLE items DROP x", all, true},
		{"ALTER TABLE items RENAME TO gone", all, true},
		{"/*!50000 UPDATE items */ SET x=1", []sqltext.Dialect{my}, true},
		{"/*M! UPDATE items */ SET x=1", []sqltext.Dialect{my}, true},
		{"SELECT 5--1; UPDATE items SET x=1", []sqltext.Dialect{my}, true},
		{`SELECT '\'; UPDATE items SET x=1 --'`, all, true},
		{"SELECT /* /* */ 1; UPDATE items SET x=1 -- */", []sqltext.Dialect{my, lt}, true},
		{`UPDATE U&"\0069tems" SET x=1`, []sqltext.Dialect{pg}, true},
		{"UPDATE 'items' SET x=1", []sqltext.Dialect{lt}, true},
		{"UPDATE items SET x='open", all, true},

		{"CREATE TABLE a AS WITH d AS (DELETE FROM items RETURNING *) SELECT * FROM d", []sqltext.Dialect{pg}, true},
		{"CREATE TABLE log (event TEXT); UPDATE items SET x=1", all, true},
		{"CREATE TABLE event (id int); DELETE FROM items", all, true},
		{"CREATE DEFINER=event@a VIEW v AS SELECT 1; DELETE FROM items", []sqltext.Dialect{my}, true},
		{"CREATE TRIGGER t AFTER INSERT ON a FOR EACH ROW SET @x=1; UPDATE items SET x=1", []sqltext.Dialect{my}, true},
		{"CREATE TRIGGER begin AFTER INSERT ON a FOR EACH ROW SET @x=1; UPDATE items SET x=1", []sqltext.Dialect{my}, true},
		{"CREATE PROCEDURE p() l: BEGIN SELECT 1; END l; UPDATE items SET x=1", []sqltext.Dialect{my}, true},
		{"CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END; UPDATE items SET x=1", []sqltext.Dialect{my, lt}, true},
		{"SET STATEMENT max_statement_time=1 FOR UPDATE items SET x=1", []sqltext.Dialect{my}, true},
		{"SET STATEMENT max_statement_time=1 FOR TRUNCATE items", []sqltext.Dialect{my}, true},
		{"BEGIN NOT ATOMIC TRUNCATE items; END", []sqltext.Dialect{my}, true},
		{"UPDATE o JOIN u ON u.id = o.uid, items SET items.x=1", []sqltext.Dialect{my}, true},
		{"UPDATE o JOIN u ON u.id = o.uid STRAIGHT_JOIN items SET items.x=1", []sqltext.Dialect{my}, true},
		{"UPDATE o USE INDEX FOR ORDER BY (i), items SET items.x=1", []sqltext.Dialect{my}, true},
		{"UPDATE value, items SET items.x=1", []sqltext.Dialect{my}, true},
		{"UPDATE app.set, items SET items.x=1", []sqltext.Dialect{my}, true},
		{"UPDATE o JOIN u ON u.id = 1.JOIN items SET items.x=1", []sqltext.Dialect{my}, true},
		{"UPDATE o JOIN (SELECT 1 AS id FROM a) s ON s.id = o.id, items SET items.x=1", []sqltext.Dialect{my}, true},
		{"DELETE i FROM o JOIN u ON u.id = o.uid, items i", []sqltext.Dialect{my}, true},
		{"DELETE FROM i USING o JOIN items i", []sqltext.Dialect{my}, true},
		{"MERGE INTO ONLY (items) USING a ON true WHEN MATCHED THEN DELETE", []sqltext.Dialect{pg}, true},
		{"TRUNCATE set, items", []sqltext.Dialect{pg}, true},
		{"ALTER TABLE part SET (fillfactor = 70), NO INHERIT items", []sqltext.Dialect{pg}, true},
		{"INSERT INTO a WITH d AS (DELETE FROM items RETURNING *) SELECT * FROM d", []sqltext.Dialect{pg}, true},
		{"WITH set AS (SELECT 1 FROM a) UPDATE items SET x=1", []sqltext.Dialect{pg}, true},
		{"SELECT 1 FROM a WHERE x IN (WITH d AS (DELETE FROM items RETURNING *) SELECT id FROM d)", []sqltext.Dialect{pg}, true},
		{"SELECT 1 FROM a WHERE b LIKE '' ESCAPE E'\\'; UPDATE items SET x=1 --'", []sqltext.Dialect{pg}, false}, // one string
		{"SELECT e_escape '\\'; UPDATE items SET x=1 --'", []sqltext.Dialect{pg}, true},
		{"UPDATE $items SET x=1; UPDATE app.5items SET x=1; UPDATE 5items SET x=1", []sqltext.Dialect{my}, false},
		{"PREPARE p FROM 'UPDATE\\nitems SET x=1'", []sqltext.Dialect{my}, true},
		{"SELECT 1 /*!99999 ' */; UPDATE items SET x=1 /*!99999 ' */", []sqltext.Dialect{my}, true},
		{"DELETE FROM /*!99999 a WHERE */ items", []sqltext.Dialect{my}, true},
		{"/*!50000UPDATE items SET x=1*/", []sqltext.Dialect{my}, true},
		{"ALTER TABLE items ALTER COLUMN x TYPE text USING 'y'", []sqltext.Dialect{pg}, true},
		{`ALTER TABLE items ALTER "x" TYPE text USING "y"::text`, []sqltext.Dialect{pg}, true},
		{`ALTER TABLE items ALTER "x" TYPE text USING "x"::text || y`, []sqltext.Dialect{pg}, true},
		{`ALTER TABLE items ALTER "x" TYPE text USING "x"::text, ALTER y TYPE text USING z`, []sqltext.Dialect{pg}, true},
		{"ALTER TABLE items ALTER x SET DATA TYPE text USING data::text", []sqltext.Dialect{pg}, true},
		{"ALTER TABLE items ALTER x SET EXPRESSION AS (1)", []sqltext.Dialect{pg}, true},
		{"ALTER TABLE items DETACH PARTITION p", []sqltext.Dialect{pg}, true},
		{"ALTER TABLE items SET SCHEMA archive", []sqltext.Dialect{pg}, true},
		{"ALTER TABLE part NO INHERIT items", []sqltext.Dialect{pg}, true},
		{"ALTER TABLE items RENAME = gone", []sqltext.Dialect{my}, true},
		{"ALTER IGNORE TABLE items ADD UNIQUE (x)", []sqltext.Dialect{my}, true},
		{"ALTER TABLE items CONVERT PARTITION p TO TABLE gone", []sqltext.Dialect{my}, true},
		{"ALTER TABLE a EXCHANGE PARTITION p WITH TABLE items", []sqltext.Dialect{my}, true},
	} {
		for _, d := range tt.dialects {
			require.Equal(t, tt.write, writes(tt.sql, d, "items"), "%s: %s", d, tt.sql)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, s := range []string{"UPDATE items SET x = '", `"`, "$a$ $a$", "/*!1 x*/", "((((", "))))", "`", "U&\"x\"", "--", "SAVEPOINT \"a\"\"b\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, d := range []sqltext.Dialect{sqltext.Postgres, sqltext.MySQL, sqltext.SQLite} {
			writes(s, d, "items")
			require.True(t, writes("UPDATE items SET x=1; "+s, d, "items"), "a write is a write, whatever follows")
			require.True(t, writes("UPDATE items SET x=1 WHERE y IN ("+s, d, "items"))
		}
	})
}

// A statement is seen whatever stands around it, wherever internal/sqltext says that
// one begins.
func FuzzEveryStatementIsSeen(f *testing.F) {
	for _, s := range []string{"-- x\rUPDATE items", "/* /* */ */ UPDATE items", "# '\nUPDATE items", "select $a$ ' $a$; UPDATE items", "select 'a\\'; UPDATE items; '", "select E'\\''; UPDATE items", "--\fUPDATE items", "select [']; UPDATE items"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, d := range []sqltext.Dialect{sqltext.Postgres, sqltext.MySQL, sqltext.SQLite} {
			var statement []string
			for rest := s; rest != ""; {
				kind, size, _ := sqltext.Next(d, rest)
				token := rest[:size]
				rest = rest[size:]
				if kind == sqltext.Semicolon {
					statement = nil
				} else if !kind.IsBlank() {
					statement = append(statement, strings.ToUpper(token))
				}
				if len(statement) == 2 && statement[0] == "UPDATE" && statement[1] == "ITEMS" {
					require.True(t, writes(s, d, "items"), "%s runs an UPDATE of items in %q", d, s)
				}
			}
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		writes(`UPDATE "orders" SET "note"=$1,"updated_at"=$2 WHERE "orders"."deleted_at" IS NULL AND "id" = $3`, sqltext.Postgres, "items")
	}
}

// A table may have the name of a keyword, where a dialect does not reserve it.
func TestTablesNamedLikeKeywords(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lock", "copy", "value", "conflict", "merge"} {
		require.True(t, writes("UPDATE "+name+" SET x = 1", sqltext.Postgres, name), name)
		require.True(t, writes("UPDATE a, "+name+" SET x = 1", sqltext.MySQL, name), name)
		require.False(t, writes("SELECT x FROM "+name, sqltext.MySQL, name), name)
	}
}

// MySQL has names that begin with a digit or a dollar.
func TestNamesThatLookLikeNumbers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"5items", "5e3", "$items"} {
		for _, before := range []string{"", "app.", "5app.", "`app`."} {
			require.True(t, writes("UPDATE "+before+name+" SET x=1", sqltext.MySQL, name), "%s%s", before, name)
		}
	}
}
