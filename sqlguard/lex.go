package sqlguard

import (
	"strings"
)

// A tokenKind is what little is needed to tell apart in a statement.
type tokenKind uint8

const (
	blank     tokenKind = iota // space or a comment
	word                       // a keyword or a name without quotes
	literal                    // a string, a quoted name, or a number
	semicolon                  // the end of a statement
	symbol                     // any other byte
)

// lex returns the length and the kind of the token that s begins with. The
// dialects differ in comments and quotes. A literal or a comment without an end
// takes up the rest; the server refuses such a text as a whole.
func lex(d Dialect, s string) (size int, kind tokenKind) {
	switch c := s[0]; {
	case c == ' ' || '\t' <= c && c <= '\r':
		return 1, blank
	case strings.HasPrefix(s, "--") && (d != MySQL || len(s) == 2 || s[2] <= ' '), c == '#' && d == MySQL:
		return lineLen(s), blank
	case strings.HasPrefix(s, "/*"):
		return commentLen(d, s), blank
	case d == MySQL && strings.HasPrefix(s, "*/"): // the end of one whose inside is run
		return 2, blank
	case c == ';':
		return 1, semicolon
	case startsWord(c):
		return wordLen(d, s)
	case '0' <= c && c <= '9':
		n := 1
		for n < len(s) && (inWord(s[n]) || s[n] == '.') {
			n++
		}
		return n, literal
	case c == '\'' || c == '"' || c == '`' && d != Postgres:
		return quotedLen(s, d == MySQL && c != '`'), literal
	case c == '[' && d == SQLite:
		if i := strings.IndexByte(s, ']'); i >= 0 {
			return i + 1, literal
		}
		return len(s), literal
	case c == '$' && d == Postgres:
		return dollarLen(s), literal
	}
	return 1, symbol
}

func wordLen(d Dialect, s string) (int, tokenKind) {
	n := 1
	for n < len(s) && inWord(s[n]) {
		n++
	}
	if d == Postgres && n == 1 && n < len(s) && (s[0] == 'e' || s[0] == 'E') && s[n] == '\'' {
		return n + quotedLen(s[n:], true), literal
	}
	return n, word
}

func startsWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func inWord(c byte) bool { return startsWord(c) || '0' <= c && c <= '9' || c == '$' }

func lineLen(s string) int {
	if i := strings.IndexAny(s, "\r\n"); i >= 0 {
		return i
	}
	return len(s)
}

// commentLen knows that comments nest in Postgres, and that MySQL runs what is in
// /*! ... */ and MariaDB what is in /*M! ... */: there only the opening is blank.
func commentLen(d Dialect, s string) int {
	if d == MySQL {
		for _, opening := range []string{"/*!", "/*M!"} {
			if strings.HasPrefix(s, opening) {
				n := len(opening)
				for n < len(s) && '0' <= s[n] && s[n] <= '9' {
					n++
				}
				return n
			}
		}
	}
	depth := 0
	for i := 0; i+1 < len(s); {
		switch two := s[i : i+2]; {
		case two == "/*" && (depth == 0 || d == Postgres):
			depth++
			i += 2
		case two == "*/":
			depth--
			i += 2
		default:
			i++
		}
		if depth == 0 {
			return i
		}
	}
	return len(s)
}

// quotedLen does not look for doubled quotes: they read as two literals in a row.
func quotedLen(s string, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return i + 1
		case s[i] == '\\' && escapes:
			i++
		}
	}
	return len(s)
}

// dollarLen is for $tag$...$tag$. A parameter such as $1 is a $ and a number.
func dollarLen(s string) int {
	n := 1
	for n < len(s) && inWord(s[n]) && s[n] != '$' {
		n++
	}
	if n == len(s) || s[n] != '$' || n > 1 && !startsWord(s[1]) {
		return 1
	}
	tag := s[:n+1]
	if i := strings.Index(s[len(tag):], tag); i >= 0 {
		return len(tag) + i + len(tag)
	}
	return len(s)
}
