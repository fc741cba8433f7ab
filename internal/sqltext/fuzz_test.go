package sqltext_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// A statement is divided in the same way whatever follows it: no text reaches beyond
// the semicolon after it, or a commit could be hidden behind it.
func FuzzStatementsDoNotReachIntoEachOther(f *testing.F) {
	for _, s := range [][2]string{
		{"select 'a'", "commit"},
		{"select 1 -- x", "'b'"},
		{"E'a'", "'\\'; commit; --'"},
		{"$a$ $b$ $a$", "$a$"},
		{"/* /* */ */", "*/"},
		{"1e", "+5"},
		{"#", "x"},
		{"/*!50000 a", "*/"},
		{"--", "-"},
		{"u&", "'x'"},
		{"[a]", "]"},
		{"`", "`"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, d := range dialects {
			a, kinds, ends := split(d, first)
			if !ends {
				continue
			}
			b, more, _ := split(d, second)
			tokens, all, _ := split(d, first+"\n;\n"+second)
			require.Equal(t, slices.Concat(a, []string{";"}, b), tokens, "%s", d)
			require.Equal(t, slices.Concat(kinds, []sqltext.Kind{sqltext.Semicolon}, more), all, "%s", d)
		}
	})
}
