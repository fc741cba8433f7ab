package migrations_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

func FuzzTableName(f *testing.F) {
	for _, s := range []string{"inventory", "app.inventory", `"app"."Odd Table"`, `"a""b"`, "a.b.c", "a..b", `"`, `""`, "Ü", "a b", "$1", "1a", `u&"x"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts, canonical, err := migrations.ParseTable(s)
		if err != nil {
			return
		}
		again, same, err := migrations.ParseTable(canonical)
		require.NoError(t, err)
		require.Equal(t, parts, again)
		require.Equal(t, canonical, same)
		_, _, err = migrations.ParseTable(canonical + "x.y.z")
		require.Error(t, err)
	})
}

func FuzzResource(f *testing.F) {
	for _, s := range []string{
		"sku", "'inventory:' || sku", "CAST(a AS text) || b", "a::numeric(1,2)::text", `"A" || E'\''`, "(a).b", "a[1]", "$$x$$ || y", "ts AT TIME ZONE z",
		"extract(day FROM x)", "a BETWEEN b AND c", "NEW.a || NEW.b", "a OPERATOR(pg_catalog.+) b", "a -- b", "(", "1e5x", "::", "as", "collate", "operator(",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		texts, err := migrations.LexTexts(expr)
		if err == nil {
			require.Equal(t, expr, strings.Join(texts, ""), "no byte may get lost")
		}
		newRow, oldRow, err := migrations.ParseResource(expr)
		if err != nil {
			return
		}
		require.NotEmpty(t, newRow)
		if upper := strings.ToUpper(expr); strings.Contains(upper, "NEW") || strings.Contains(upper, "OLD") {
			return
		}
		bare := strings.ReplaceAll(newRow, "NEW.", "")
		require.Equal(t, bare, strings.ReplaceAll(oldRow, "OLD.", ""))
		require.Equal(t, strings.Join(strings.Fields(expr), ""), strings.Join(strings.Fields(bare), ""), "nothing but rows is added")
	})
}

// What the parser takes for a name is the same name to Postgres.
func TestRandomTableNamesAreReadAsPostgresReadsThem(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	random := rand.New(rand.NewPCG(1, 1))
	alphabet := []string{"a", "B", "_", "1", "$", `"`, `""`, ".", "é", "ß", " ", "'", "-", "\t", "select", `"A b"`, "."}
	var names, want []string
	for range 20_000 {
		var s strings.Builder
		for range 1 + random.IntN(6) {
			s.WriteString(alphabet[random.IntN(len(alphabet))])
		}
		if parts, _, err := migrations.ParseTable(s.String()); err == nil {
			names, want = append(names, s.String()), append(want, strings.Join(parts, "\x01"))
		}
	}
	require.Greater(t, len(names), 1000)
	var got []string
	require.NoError(t, db.QueryRow(t.Context(), "SELECT array_agg(array_to_string(parse_ident(n), E'\\x01') ORDER BY i) FROM unnest($1::text[]) WITH ORDINALITY u (n, i)", names).Scan(&got))
	require.Equal(t, want, got)
}

// An expression that Postgres understands is rewritten to the same meaning, or to
// one that Postgres refuses where both rows are in sight, as in a trigger.
func TestRandomExpressionsKeepTheirMeaningOrFail(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, `CREATE TABLE thing (sku text, n int, at text, time text, zone text, "Q" text, flag boolean, ts timestamp, tags text[], "between" int, "is" text);
		INSERT INTO thing VALUES ('S', 2, 'at', 'time', 'UTC', 'q', true, '2026-01-02', '{x,y}', 5, 'is')`)
	random := rand.New(rand.NewPCG(2, 2))
	vocabulary := strings.Split(`sku;n;at;time;zone;"Q";flag;ts;tags;between;'lit';1;2;(;);(;);[1];lower(;||;||;||;||;::text;::int;AT TIME ZONE;BETWEEN;AND;NOT;`+
		`IS;UNKNOWN;NULL;LIKE;ESCAPE;COLLATE "C";=;+;CASE WHEN;THEN;ELSE;END;CAST(;AS text);date;interval '1 day';extract(day FROM;IN (;,;OR;`+
		`DISTINCT FROM;$$d$$;OPERATOR(pg_catalog.=);coalesce(;'UTC';true`, ";")
	understood, equal := 0, 0
	for range 6000 {
		words := make([]string, 1+random.IntN(7))
		for i := range words {
			words[i] = vocabulary[random.IntN(len(vocabulary))]
		}
		expr := strings.Join(words, " ")
		newRow, _, err := migrations.ParseResource(expr)
		if err != nil {
			continue
		}
		var expected, got *string
		if db.QueryRow(t.Context(), "SELECT ("+expr+")::text FROM thing").Scan(&expected) != nil {
			continue
		}
		understood++
		if db.QueryRow(t.Context(), "SELECT ("+newRow+")::text FROM thing AS new, thing AS old").Scan(&got) == nil {
			require.Equal(t, expected, got, "%s as %s", expr, newRow)
			equal++
		} else {
			t.Logf("refused: %s as %s", expr, newRow)
		}
	}
	require.Greater(t, understood, 50)
	require.Greater(t, equal*100, understood*95, "%d of %d", equal, understood)
}
