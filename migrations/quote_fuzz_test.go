package migrations_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/migrations"
)

func FuzzQuoteIdent(f *testing.F) {
	for _, s := range []string{"inventory", "Odd Table", `a"b`, `"`, `""; DROP TABLE t; --`, "select", "1a", "é", "a.b", "\x00", "$", "u&", strings.Repeat("x", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		quoted := migrations.QuoteIdent(name)
		texts, err := migrations.LexTexts("x=" + quoted + ";")
		require.NoError(t, err)
		require.Equal(t, []string{"x", "=", quoted, ";"}, texts, "the name reaches beyond its quotes")

		parts, _, err := migrations.ParseTable(quoted)
		if name == "" || len(name) > 63 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			require.Error(t, err, "Postgres would not keep that name")
			return
		}
		require.NoError(t, err)
		require.Equal(t, []string{name}, parts)
	})
}

func FuzzQuoteLiteral(f *testing.F) {
	for _, s := range []string{"", "inventory:", "it's", `\`, `\'; DROP TABLE t; --`, "''", `\\'`, "E", "\n", "$$", "é\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := migrations.QuoteLiteral(s)
		texts, err := migrations.LexTexts("x=" + quoted + ";")
		require.NoError(t, err)
		require.Equal(t, []string{"x", "=", quoted, ";"}, texts, "the string reaches beyond its quotes")
		require.Equal(t, s, literal(quoted))
	})
}

// literal reads a string as Postgres does: only in the E form has a backslash a meaning,
// and here it stands before nothing but another.
func literal(quoted string) string {
	inside, escapes := strings.CutPrefix(quoted, "E")
	inside = strings.TrimSuffix(strings.TrimPrefix(inside, "'"), "'")
	pairs := []string{"''", "'"}
	if escapes {
		pairs = append(pairs, `\\`, `\`)
	}
	return strings.NewReplacer(pairs...).Replace(inside)
}

func FuzzQuoteTableFor(f *testing.F) {
	for _, s := range []string{"inventory", "shop.inventory", "`Odd``Table`", `"a""b"."c"`, "a.b.c", "`", "a b", "", "a.", "`a`b", "é$1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, table string) {
		for dialect, d := range map[string]sqltext.Dialect{"mysql": sqltext.MySQL, "sqlite": sqltext.SQLite} {
			quoted, err := migrations.QuoteTableFor(dialect, table)
			if err != nil {
				continue
			}
			var kinds []sqltext.Kind
			for rest := quoted; rest != ""; {
				kind, size, ends := sqltext.Next(d, rest)
				require.True(t, ends)
				kinds, rest = append(kinds, kind), rest[size:]
			}
			require.Contains(t, [][]sqltext.Kind{{sqltext.Quoted}, {sqltext.Quoted, sqltext.Symbol, sqltext.Quoted}}, kinds, "%s: %s", dialect, quoted)
			again, err := migrations.QuoteTableFor(dialect, quoted)
			require.NoError(t, err)
			require.Equal(t, quoted, again, "%s", dialect)
		}
	})
}
