package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// Each expression is evaluated twice: with bare columns over the table, and as
// rewritten over the table under the name of the row.
func TestAnExpressionMeansTheSameForARow(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, `CREATE TYPE place AS (city text, zip int); CREATE SCHEMA app; CREATE TYPE app."My Kind" AS ENUM ('good', 'bad');
		CREATE FUNCTION app.name(a text, b text DEFAULT '!') RETURNS text LANGUAGE sql AS 'SELECT a || b';
		CREATE TABLE thing (sku text, id bigint, "Odd Col" text, "select" text, day date, ts timestamptz, zone text, time text, at text, at2 place,
			tags text[], n int, kind text, flag boolean, value jsonb, new_id int, "é" text, name text, year int, escape text, epoch int);
		INSERT INTO thing VALUES ('S', 7, 'odd', 'sel', '2026-01-02', '2026-01-02 03:04:05+00', 'Asia/Tokyo', 'noon', 'there', ROW('Bern', 3000),
			'{x,y,z}', 2, 'good', true, '{"a": {"b": "deep"}}', 5, 'accent', 'me', 2026, '!', 9)`)
	for expr, want := range map[string]string{
		`sku`:                                                     `NEW.sku`,
		`'inventory:' || sku`:                                     `'inventory:' || NEW.sku`,
		`'sku' || SKU || E'\'sku' || $$sku$$`:                     `'sku' || NEW.SKU || E'\'sku' || $$sku$$`,
		`"Odd Col" || "select"`:                                   `NEW."Odd Col" || NEW."select"`,
		`id::text || sku`:                                         `NEW.id::text || NEW.sku`,
		`CAST(id AS text) || sku`:                                 `CAST(NEW.id AS text) || NEW.sku`,
		`id::character varying(3) || n`:                           `NEW.id::character varying(3) || NEW.n`,
		`id::numeric(10, 2)::text`:                                `NEW.id::numeric(10, 2)::text`,
		`n::double precision + id`:                                `NEW.n::double precision + NEW.id`,
		`kind::app."My Kind"`:                                     `NEW.kind::app."My Kind"`,
		`(CAST(kind AS app."My Kind") = 'good')`:                  `(CAST(NEW.kind AS app."My Kind") = 'good')`,
		`tags::text[]`:                                            `NEW.tags::text[]`,
		`lower(sku) || pg_catalog.upper(kind)`:                    `lower(NEW.sku) || pg_catalog.upper(NEW.kind)`,
		`app.name(a => sku, b := kind)`:                           `app.name(a => NEW.sku, b := NEW.kind)`,
		`CASE kind WHEN 'good' THEN sku ELSE name END`:            `CASE NEW.kind WHEN 'good' THEN NEW.sku ELSE NEW.name END`,
		`CASE WHEN flag THEN sku END || name`:                     `CASE WHEN NEW.flag THEN NEW.sku END || NEW.name`,
		`coalesce(nullif(sku, ''), name)`:                         `coalesce(nullif(NEW.sku, ''), NEW.name)`,
		`(at2).city || (at2).zip`:                                 `(NEW.at2).city || (NEW.at2).zip`,
		`tags[1] || tags[n] || (tags[2:n])[1]`:                    `NEW.tags[1] || NEW.tags[NEW.n] || (NEW.tags[2: NEW.n])[1]`,
		`array_to_string(ARRAY[sku, name], '-')`:                  `array_to_string(ARRAY[NEW.sku, NEW.name], '-')`,
		`value -> 'a' ->> 'b'`:                                    `NEW.value -> 'a' ->> 'b'`,
		`value #>> '{a,b}' || sku`:                                `NEW.value #>> '{a,b}' || NEW.sku`,
		`extract(year FROM ts)::int || sku`:                       `extract(year FROM NEW.ts)::int || NEW.sku`,
		`EXTRACT(epoch FROM ts) + epoch`:                          `EXTRACT(epoch FROM NEW.ts) + NEW.epoch`,
		`extract(day FROM day) + year`:                            `extract(day FROM NEW.day) + NEW.year`,
		`ts AT TIME ZONE 'UTC'`:                                   `NEW.ts AT TIME ZONE 'UTC'`,
		`ts AT TIME ZONE zone || time || at`:                      `NEW.ts AT TIME ZONE NEW.zone || NEW.time || NEW.at`,
		`(ts::timestamp with time zone) AT TIME ZONE zone`:        `(NEW.ts::timestamp with time zone) AT TIME ZONE NEW.zone`,
		`ts::timestamptz AT TIME ZONE zone`:                       `NEW.ts::timestamptz AT TIME ZONE NEW.zone`,
		`date '2026-01-01' + n`:                                   `date '2026-01-01' + NEW.n`,
		`ts + interval '1 day' * n`:                               `NEW.ts + interval '1 day' * NEW.n`,
		`n BETWEEN id AND new_id`:                                 `NEW.n BETWEEN NEW.id AND NEW.new_id`,
		`n NOT BETWEEN id AND new_id`:                             `NEW.n NOT BETWEEN NEW.id AND NEW.new_id`,
		`sku LIKE name ESCAPE escape`:                             `NEW.sku LIKE NEW.name ESCAPE NEW.escape`,
		`sku NOT ILIKE '%a' ESCAPE '!'`:                           `NEW.sku NOT ILIKE '%a' ESCAPE '!'`,
		`sku SIMILAR TO name`:                                     `NEW.sku SIMILAR TO NEW.name`,
		`flag IS NOT UNKNOWN AND NOT flag IS TRUE`:                `NEW.flag IS NOT UNKNOWN AND NOT NEW.flag IS TRUE`,
		`flag IS UNKNOWN`:                                         `NEW.flag IS UNKNOWN`,
		`sku IS DISTINCT FROM name`:                               `NEW.sku IS DISTINCT FROM NEW.name`,
		`sku IN ('a', name) OR n = ANY(ARRAY[n])`:                 `NEW.sku IN ('a', NEW.name) OR NEW.n = ANY(ARRAY[NEW.n])`,
		`sku COLLATE "C" < name COLLATE pg_catalog."C"`:           `NEW.sku COLLATE "C" < NEW.name COLLATE pg_catalog."C"`,
		`(sku || name) COLLATE "C"`:                               `(NEW.sku || NEW.name) COLLATE "C"`,
		`n OPERATOR(pg_catalog.+) id`:                             `NEW.n OPERATOR(pg_catalog.+) NEW.id`,
		`substring(sku FROM n FOR 1) || trim(BOTH ' ' FROM name)`: `substring(NEW.sku FROM NEW.n FOR 1) || trim(BOTH ' ' FROM NEW.name)`,
		`overlay(sku PLACING name FROM n)`:                        `overlay(NEW.sku PLACING NEW.name FROM NEW.n)`,
		`position('S' IN sku)`:                                    `position('S' IN NEW.sku)`,
		`format('%s:%s', sku, id % 3)`:                            `format('%s:%s', NEW.sku, NEW.id % 3)`,
		`concat_ws(':', VARIADIC tags)`:                           `concat_ws(':', VARIADIC NEW.tags)`,
		`"é" || é`:                                                `NEW."é" || NEW.é`,
		`n*1e2+-id`:                                               `NEW.n*1e2+-NEW.id`,
		`1.5*n+.5`:                                                `1.5*NEW.n+.5`,
		"\n\tsku\n\t|| name\n":                                    "NEW.sku\n\t|| NEW.name",
		`'constant'`:                                              `'constant'`,
		`new.sku || NEW . "Odd Col"`:                              `NEW.sku || NEW . "Odd Col"`,
		`"new".sku`:                                               `NEW.sku`,
		`lower(NEW.sku) || (NEW.at2).city`:                        `lower(NEW.sku) || (NEW.at2).city`,
		`NEW IS NULL`:                                             `NEW IS NULL`,
		`current_user || sku`:                                     `current_user || NEW.sku`,
		`NULL BETWEEN n AND id`:                                   `NULL BETWEEN NEW.n AND NEW.id`,
		`X'1F'::int || sku`:                                       `X'1F'::int || NEW.sku`,
	} {
		newRow, oldRow, err := migrations.ParseResource(expr)
		require.NoError(t, err, expr)
		require.Equal(t, want, newRow)
		bare := "SELECT (" + expr + ")::text FROM thing"
		if hasRow(expr) {
			bare += " AS new"
		}
		var expected, fromNew, fromOld *string
		require.NoError(t, db.QueryRow(t.Context(), bare).Scan(&expected), bare)
		require.NoError(t, db.QueryRow(t.Context(), "SELECT ("+newRow+")::text FROM thing AS new, thing AS old").Scan(&fromNew), newRow)
		require.NoError(t, db.QueryRow(t.Context(), "SELECT ("+oldRow+")::text FROM thing AS new, thing AS old").Scan(&fromOld), oldRow)
		require.Equal(t, expected, fromNew, newRow)
		require.Equal(t, expected, fromOld, oldRow)
	}
}

func hasRow(expr string) bool {
	texts, err := migrations.LexTexts(expr)
	for _, text := range texts {
		switch text {
		case "new", "NEW", `"new"`:
			return true
		}
	}
	return err != nil
}

func TestAnExpressionThatCannotNameAFenceIsRefused(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		" ":                     "the expression is empty",
		"sku; DROP TABLE x":     "the expression has a semicolon",
		"sku -- all":            `comment "-- all" in the expression`,
		"sku /* a /* b */ c */": "in the expression",
		"sku)) OR ((true":       `")" closes nothing`,
		"(sku":                  `"(" is not closed`,
		"tags[1":                `"[" is not closed`,
		"(tags[1)]":             `")" closes nothing`,
		"(SELECT sku)":          "the expression has a subquery",
		"EXISTS (TABLE x)":      "the expression has a subquery",
		"sku IN (VALUES ('a'))": "the expression has a subquery",
		"sku, name":             "a comma outside of parentheses",
		"'open":                 "does not end",
		`"open`:                 "does not end",
		"$$open":                "does not end",
		"/* open":               "does not end",
		"$1":                    "parameter $1 in the expression",
		"inventory.sku":         "inventory.sku: write the column without a qualifier",
		"app.inventory.sku":     "write the column without a qualifier",
		"inventory.*":           "write the column without a qualifier",
		"OLD.sku":               "write NEW instead of OLD",
		"NEW.sku || name":       "name has no row; write NEW. before every column or before none",
		`NEW.sku || "old".sku`:  "write NEW instead of OLD",
	} {
		_, _, err := migrations.Protect("inventory", migrations.ProtectOptions{Trigger: true, Resource: expr})
		require.ErrorContains(t, err, want, expr)
		require.ErrorContains(t, err, `migrations: protect "inventory": resource `)
	}
}
