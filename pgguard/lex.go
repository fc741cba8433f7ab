package pgguard

import "strings"

// A tokenKind is what little pgguard needs to tell apart in a statement.
type tokenKind uint8

const (
	blank     tokenKind = iota // space or a comment
	word                       // a keyword or a name without quotes
	literal                    // a string, a quoted name, or a number
	semicolon                  // the end of a statement
	symbol                     // any other byte
)

// lex returns the length and the kind of the token that s begins with, by
// PostgreSQL's rules with standard_conforming_strings on. A literal or a comment
// without an end takes up the rest; the server refuses such a text as a whole.
func lex(s string) (size int, kind tokenKind) {
	switch c := s[0]; {
	case isSpace(c):
		return 1, blank
	case strings.HasPrefix(s, "--"):
		return lineLen(s), blank
	case strings.HasPrefix(s, "/*"):
		return commentLen(s), blank
	case c == ';':
		return 1, semicolon
	case startsWord(c):
		n := 1
		for n < len(s) && inWord(s[n]) {
			n++
		}
		if n == 1 && n < len(s) && (c == 'e' || c == 'E') && s[n] == '\'' {
			return n + escapedLen(s[n:]), literal
		}
		return n, word
	case '0' <= c && c <= '9':
		n := 1
		for n < len(s) && (inWord(s[n]) || s[n] == '.') {
			n++
		}
		return n, literal
	case c == '\'' || c == '"':
		return quotedLen(s, false), literal
	case c == '$':
		return dollarLen(s), literal
	}
	return 1, symbol
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

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

// commentLen knows that comments nest.
func commentLen(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); {
		switch s[i : i+2] {
		case "/*":
			depth++
			i += 2
		case "*/":
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

// escapedLen is for E'...', which may go on in a '...' on the next line, with
// escapes there too.
func escapedLen(s string) int {
	n := quotedLen(s, true)
	for i := n; i < len(s); {
		switch {
		case isSpace(s[i]):
			i++
		case strings.HasPrefix(s[i:], "--"):
			i += lineLen(s[i:])
		case s[i] == '\'':
			i += quotedLen(s[i:], true)
			n = i
		default:
			return n
		}
	}
	return n
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
