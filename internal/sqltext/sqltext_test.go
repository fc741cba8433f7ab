package sqltext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/sqltext"
)

var dialects = []sqltext.Dialect{sqltext.Postgres, sqltext.MySQL, sqltext.SQLite}

// split returns the tokens of a text without the blank ones, and whether the last
// one ends.
func split(d sqltext.Dialect, s string) (tokens []string, kinds []sqltext.Kind, ends bool) {
	for ends = true; s != ""; {
		kind, size, closed := sqltext.Next(d, s)
		if !kind.IsBlank() {
			tokens, kinds = append(tokens, s[:size]), append(kinds, kind)
		}
		s, ends = s[size:], closed
	}
	return tokens, kinds, ends
}

func TestTokensOfEveryDialect(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"select a.b, 'c;d'":      {"select", "a", ".", "b", ",", "'c;d'"},
		"'it''s' x":              {"'it''s'", "x"},
		"a -- b;\n;c":            {"a", ";", "c"},
		"a /* b; */ c":           {"a", "c"},
		"a::b := c => d = e":     {"a", "::", "b", ":=", "c", "=>", "d", "=", "e"},
		"1.5e-3+.5 12abc 1e-5x":  {"1.5e-3", "+", ".5", "12abc", "1e-5x"},
		"0x1F 1_000 1e+ 5 1e5+2": {"0x1F", "1_000", "1e", "+", "5", "1e5", "+", "2"},
		"é_1$ x":                 {"é_1$", "x"},
		"\t\n\v\f\r ":            nil,
	} {
		for _, d := range dialects {
			got, _, ends := split(d, text)
			require.Equal(t, want, got, "%s: %s", d, text)
			require.True(t, ends)
		}
	}
}

func TestDialectsDiffer(t *testing.T) {
	t.Parallel()
	pg, my, lite := sqltext.Postgres, sqltext.MySQL, sqltext.SQLite
	for _, c := range []struct {
		dialect sqltext.Dialect
		text    string
		want    []string
	}{
		{pg, "a /* /* */ b */ c", []string{"a", "c"}},
		{my, "a /* /* */ b", []string{"a", "b"}},
		{lite, "a /* /* */ b", []string{"a", "b"}},
		{my, "/*!50000 a */ /*M!100 b */", []string{"a", "b"}},
		{my, "a.*/*'*/ b; c /*'*/", []string{"a", ".", "*", "b", ";", "c"}},
		{my, "1 --1", []string{"1", "-", "-", "1"}},
		{pg, "1 --1", []string{"1"}},
		{my, "a # b\nc", []string{"a", "c"}},
		{pg, "a # b", []string{"a", "#", "b"}},
		{pg, "a -- b\rc", []string{"a", "c"}}, // to the others it is still the comment
		{my, "a -- b\rc", []string{"a"}},
		{lite, "a -- b\rc", []string{"a"}},
		{pg, `'\' a`, []string{`'\'`, "a"}},
		{my, `'\' a'`, []string{`'\' a'`}},
		{lite, `'\' a`, []string{`'\'`, "a"}},
		{my, `"\" a"`, []string{`"\" a"`}},
		{lite, "`a``b` [c;d] x", []string{"`a``b`", "[c;d]", "x"}},
		{pg, "a[1]", []string{"a", "[", "1", "]"}},
		{pg, "E'\\';' e'a''b' x", []string{"E'\\';'", "e'a''b'", "x"}},
		{pg, "E'a' -- c\n '\\';' x", []string{"E'a' -- c\n '\\';'", "x"}},
		{pg, "E'a' + 'b\\' x", []string{"E'a'", "+", "'b\\'", "x"}},
		{pg, `B'1' X'F' n'\' U&'x' u&"y" b`, []string{"B'1'", "X'F'", `n'\'`, "U&'x'", `u&"y"`, "b"}},
		{my, "X'F'", []string{"X", "'F'"}},
		{pg, "$$;$$ $a$;$$;$a$ $1 a$b$ $ $é$é$é$", []string{"$$;$$", "$a$;$$;$a$", "$1", "a$b$", "$", "$é$é$é$"}},
		{lite, "$a", []string{"$", "a"}},
		{my, "$a", []string{"$a"}},
		{lite, "\ufeffa\ufeffb \ufeff", []string{"a\ufeffb"}},
		{my, "\ufeffa", []string{"\ufeffa"}},
		{pg, "1e--x", []string{"1e"}},
		{pg, "1$$;$$", []string{"1", "$$;$$"}},
	} {
		got, _, ends := split(c.dialect, c.text)
		require.Equal(t, c.want, got, "%s: %s", c.dialect, c.text)
		require.True(t, ends, c.text)
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]sqltext.Kind{
		" ": sqltext.Space, "-- a": sqltext.Comment, "/**/": sqltext.Comment, "a": sqltext.Word, `"a"`: sqltext.Quoted, `U&"a"`: sqltext.Quoted,
		"'a'": sqltext.Literal, "E'a'": sqltext.Literal, "$$a$$": sqltext.Dollar, "1": sqltext.Number, "$1": sqltext.Param, ";": sqltext.Semicolon, "?": sqltext.Symbol, "::": sqltext.Symbol,
	} {
		kind, size, ends := sqltext.Next(sqltext.Postgres, text)
		require.Equal(t, want, kind, text)
		require.Equal(t, len(text), size)
		require.True(t, ends)
	}
	kind, _, _ := sqltext.Next(sqltext.MySQL, `"a"`)
	require.Equal(t, sqltext.Literal, kind)
}

func TestATokenWithoutAnEndTakesUpTheRest(t *testing.T) {
	t.Parallel()
	for text, in := range map[string][]sqltext.Dialect{
		"'a;": dialects, `"a;`: dialects, "/* a;": dialects, "'a'';": dialects, "`a;": {sqltext.MySQL, sqltext.SQLite}, "[a;": {sqltext.SQLite},
		"$$a;": {sqltext.Postgres}, "E'a\\'": {sqltext.Postgres}, "E'a'\n'b;": {sqltext.Postgres}, "/* /* */": {sqltext.Postgres}, "U&'": {sqltext.Postgres},
	} {
		for _, d := range in {
			_, size, ends := sqltext.Next(d, text)
			require.False(t, ends, "%s: %s", d, text)
			require.Equal(t, len(text), size, "%s: %s", d, text)
		}
	}
}

func FuzzNext(f *testing.F) {
	for _, s := range []string{"select 'a' -- b", "$x$ y $x$", "/* /* */", "`a", "[b", "E'\\'", "/*!50000 a */", "#", "U&\"", "1e-", ".5", "$1", "E'a' -- \n 'b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, d := range dialects {
			for rest := s; rest != ""; {
				kind, size, ends := sqltext.Next(d, rest)
				if kind == 0 || size < 1 || size > len(rest) || !ends && size != len(rest) {
					t.Fatalf("%s: %q: kind %d, size %d, ends %t", d, rest, kind, size, ends)
				}
				if again, same, _ := sqltext.Next(d, rest[:size]); ends && (again != kind || same != size) {
					t.Fatalf("%s: %q by itself: kind %d, size %d", d, rest[:size], again, same)
				}
				rest = rest[size:]
			}
		}
	})
}

func TestWhatASettingOfTheServerDecides(t *testing.T) {
	t.Parallel()
	pg, my, lite := sqltext.Postgres, sqltext.MySQL, sqltext.SQLite
	for _, c := range []struct {
		dialect sqltext.Dialect
		before  string
		token   string
		want    bool
	}{
		{pg, "", `'a\b'`, false},
		{pg, "", `'a\'`, true},
		{pg, "", `'a\\'`, false},
		{pg, "", `'a\'''`, true},
		{pg, "", `E'a\''`, false},
		{pg, "like x escape ", `'\'`, false},
		{pg, "e_escape ", `'\'`, true},
		{pg, "like x escape ", `'\'''`, true},
		{pg, "", `"a\"`, false},
		{pg, "", `U&"a"`, true},
		{pg, "", "update", false},
		{my, "", `'a\''`, true},
		{my, "", `"a\""`, true},
		{my, "", "'\xbf\\\\'", true},
		{my, "", "'\xbf\\n'", false},
		{my, "", "`a\\`", false},
		{my, "", "/*!50000", true},
		{my, "", "/*M!", true},
		{my, "", "/*Mx*/", false},
		{my, "", "/* /* */", true},
		{pg, "", "/* /* */ */", false},
		{lite, "", `'a\'`, false},
	} {
		require.Equal(t, c.want, sqltext.Ambiguous(c.dialect, c.before, c.token), "%s: %s%s", c.dialect, c.before, c.token)
	}
}
