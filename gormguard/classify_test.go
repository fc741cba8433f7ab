package gormguard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/sqlguard"
)

func TestWritesAreToldFromReads(t *testing.T) {
	t.Parallel()
	const (
		pg = sqlguard.Postgres
		my = sqlguard.MySQL
		lt = sqlguard.SQLite
	)
	all := []sqlguard.Dialect{pg, my, lt}
	for _, tt := range []struct {
		sql      string
		dialects []sqlguard.Dialect
		write    bool
	}{
		{"SELECT * FROM items", all, false},
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
		{"CREATE TRIGGER t AFTER UPDATE ON items BEGIN UPDATE items SET x = 1; DELETE FROM items; END", []sqlguard.Dialect{my, lt}, false},
		{"EXPLAIN SELECT * FROM items", all, false},
		{"SAVEPOINT items", all, false},
		{"UPDATE items_old SET x = 1", all, false},

		{"UPDATE items SET x = 1", all, true},
		{"update\titems\nset x=1", all, true},
		{"UPDATE/**/items/**/SET x=1", all, true},
		{"-- note\nUPDATE items SET x=1", all, true},
		{"-- note\rUPDATE items SET x=1", []sqlguard.Dialect{pg}, true}, // the end of a line there
		{"WITH a AS (SELECT 1) UPDATE \ufeffitems SET x=1", []sqlguard.Dialect{lt}, true},
		{"CREATE OR REPLACE TABLE items (id int)", []sqlguard.Dialect{my}, true},
		{"UPDATE app.items SET x=1", all, true},
		{`UPDATE "app"."Items" i SET x=1`, all, true},
		{"UPDATE `items` SET x=1", all, true},
		{"UPDATE [items] SET x=1", []sqlguard.Dialect{lt}, true},
		{"UPDATE ONLY items SET x=1", []sqlguard.Dialect{pg}, true},
		{"UPDATE a, items SET x=1", all, true},
		{"UPDATE a JOIN items ON a.id = items.id SET items.x=1", all, true},
		{"UPDATE OR REPLACE items SET x=1", []sqlguard.Dialect{lt}, true},
		{"INSERT INTO items VALUES (1)", all, true},
		{"INSERT OR IGNORE INTO items VALUES (1)", all, true},
		{"REPLACE INTO items VALUES (1)", all, true},
		{"REPLACE items SET x = 1", []sqlguard.Dialect{my}, true},
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
		{"/*!50000 UPDATE items */ SET x=1", []sqlguard.Dialect{my}, true},
		{"/*M! UPDATE items */ SET x=1", []sqlguard.Dialect{my}, true},
		{"SELECT 5--1; UPDATE items SET x=1", []sqlguard.Dialect{my}, true},
		{`SELECT '\'; UPDATE items SET x=1 --'`, all, true},
		{"SELECT /* /* */ 1; UPDATE items SET x=1 -- */", all, true},
		{`UPDATE U&"\0069tems" SET x=1`, []sqlguard.Dialect{pg}, true},
		{"UPDATE 'items' SET x=1", []sqlguard.Dialect{lt}, true},
		{"INSERT INTO log SELECT * FROM items", all, true}, // it reads; a text cannot always tell
		{"UPDATE items SET x='open", all, true},
	} {
		for _, d := range tt.dialects {
			require.Equal(t, tt.write, gormguard.Writes(tt.sql, d, "items"), "%s: %s", d, tt.sql)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, s := range []string{"UPDATE items SET x = '", `"`, "$a$ $a$", "/*!1 x*/", "((((", "))))", "`", "U&\"x\"", "--", "SAVEPOINT \"a\"\"b\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, d := range []sqlguard.Dialect{sqlguard.Postgres, sqlguard.MySQL, sqlguard.SQLite} {
			gormguard.Writes(s, d, "items")
			require.True(t, gormguard.Writes("UPDATE items SET x=1; "+s, d, "items"), "a write is a write, whatever follows")
			require.True(t, gormguard.Writes("UPDATE items SET x=1 WHERE y IN ("+s, d, "items"))
		}
	})
}

// What the server would run is seen, whatever stands around it: internal/sqltext,
// which divides a text as the server does, is asked where its statements begin.
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
					require.True(t, gormguard.Writes(s, sqlguard.Dialect(d), "items"), "%s runs an UPDATE of items in %q", d, s)
				}
			}
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		gormguard.Writes(`UPDATE "orders" SET "note"=$1,"updated_at"=$2 WHERE "orders"."deleted_at" IS NULL AND "id" = $3`, sqlguard.Postgres, "items")
	}
}
