package sqlguard

import (
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// maxVersioned bounds how many texts one text may be: each comment doubles them.
const maxVersioned = 4

// readings returns what a server may make of a text. MySQL and MariaDB run what is
// in /*!50000 ... */, or skip it, by their version: a quote in there, or the first
// word of a statement, changes what the rest is. ok is false if there are too many
// such comments, or comments in one, on which the servers differ.
func readings(d Dialect, text string) (all []string, ok bool) {
	if d != MySQL || !strings.Contains(text, "/*!") && !strings.Contains(text, "/*M!") {
		return []string{text}, true
	}
	return versions("", text, false, maxVersioned)
}

// versions returns the readings of done + rest, where done has no such comment. inside:
// rest begins in one.
func versions(done, rest string, inside bool, left int) (all []string, ok bool) {
	for i := 0; i < len(rest); {
		if inside && strings.HasPrefix(rest[i:], "*/") {
			done, rest, inside, i = done+rest[:i]+" ", rest[i+2:], false, 0
			continue
		}
		_, size, _ := sqltext.Next(sqltext.MySQL, rest[i:])
		token := rest[i : i+size]
		if !strings.HasPrefix(token, "/*!") && !strings.HasPrefix(token, "/*M!") {
			i += size
			continue
		}
		done, rest = done+rest[:i]+" ", rest[i+size:]
		skipped, after, closed := strings.Cut(rest, "*/")
		if left == 0 || strings.Contains(skipped, "/*") {
			return nil, false
		}
		if all, ok = versions(done, rest, true, left-1); !closed || !ok {
			return all, ok
		}
		without, ok := versions(done, after, false, left-1)
		return append(all, without...), ok
	}
	return []string{done + rest}, true
}
