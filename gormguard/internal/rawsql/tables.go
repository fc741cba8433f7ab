package rawsql

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// Tables holds the names of guarded tables: lower case, without a schema, and
// without quotes. Two tables of one name in two schemas are guarded together:
// search paths are not for a client to resolve. It is read on every statement and
// written a few times in the life of a process.
type Tables struct {
	mu  sync.Mutex
	set atomic.Pointer[map[string]string] // name to version column
}

// NewTables returns an empty set.
func NewTables() *Tables {
	s := &Tables{}
	s.set.Store(&map[string]string{})
	return s
}

// Add guards a table, whose name is that of ParseTable, with its version column.
func (s *Tables) Add(name, column string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.set.Load())
	next[name] = column
	s.set.Store(&next)
}

// Has reports whether a name, as it stands between its quotes, is guarded.
func (s *Tables) Has(name string) bool {
	_, ok := s.Column(name)
	return ok
}

// Column returns the version column of a guarded table.
func (s *Tables) Column(name string) (string, bool) {
	var lower [64]byte
	if len(name) > len(lower) {
		column, ok := (*s.set.Load())[strings.ToLower(name)]
		return column, ok
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c >= utf8.RuneSelf || c == '"' || c == '`':
			column, ok := (*s.set.Load())[strings.ToLower(Unescaped(name))]
			return column, ok
		}
		lower[i] = c
	}
	column, ok := (*s.set.Load())[string(lower[:len(name)])]
	return column, ok
}

// Names returns the guarded ones, sorted.
func (s *Tables) Names() []string { return slices.Sorted(maps.Keys(*s.set.Load())) }

// Unescaped returns what a name in quotes stands for, given what is between them.
func Unescaped(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, `""`, `"`), "``", "`")
}

// ParseTable reads a name as it is written in SQL, with or without a schema and
// quotes, and returns what Tables holds of it.
func ParseTable(s string) (string, error) {
	l := Lexer{SQL: s, Dialect: sqltext.SQLite} // the dialect that knows every kind of quotes
	name, parts, dot := "", 0, true
	for {
		t, ok := l.Next()
		if !ok {
			break
		}
		switch {
		case t.Kind == Punct && t.Text == "." && !dot:
			dot = true
		case (t.Kind == Word || t.Kind == Quoted) && dot && t.Text != "":
			name, dot = t.Text, false
			parts++
		default:
			return "", fmt.Errorf("gormguard: table %q: unexpected %q; write it as in SQL, such as items, app.items or \"Odd Table\"", s, t.Text)
		}
	}
	switch {
	case l.Odd || l.Comment:
		return "", fmt.Errorf("gormguard: table %q: the quotes are not balanced, or there is a comment", s)
	case parts == 0 || dot:
		return "", fmt.Errorf("gormguard: table %q: the name is missing", s)
	case !utf8.ValidString(name) || strings.IndexFunc(name, unicode.IsControl) >= 0:
		return "", fmt.Errorf("gormguard: table %q: the name has control characters", s)
	}
	return strings.ToLower(Unescaped(name)), nil
}
