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
	return versions("", text, maxVersioned)
}

// versions returns the readings of done + rest, where done has no such comment.
func versions(done, rest string, left int) (all []string, ok bool) {
	for i := 0; i < len(rest); {
		_, size, _ := sqltext.Next(sqltext.MySQL, rest[i:])
		token := rest[i : i+size]
		if !strings.HasPrefix(token, "/*!") && !strings.HasPrefix(token, "/*M!") {
			i += size
			continue
		}
		done, inside := done+rest[:i]+" ", rest[i+size:]
		skipped, after, closed := strings.Cut(inside, "*/")
		if left == 0 || strings.Contains(skipped, "/*") {
			return nil, false
		}
		if all, ok = versions(done, inside, left-1); !closed || !ok {
			return all, ok
		}
		without, ok := versions(done, after, left-1)
		return append(all, without...), ok
	}
	return []string{done + rest}, true
}
