// Package sqltext divides SQL into tokens, as far as it takes to find the
// statements of a text, its names and its strings. Of the grammar it knows what
// begins and ends transactions.
package sqltext

import "strings"

// A Dialect is whose rules hold. The values are those of sqlguard.Dialect.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres" // with standard_conforming_strings on
	MySQL    Dialect = "mysql"    // MariaDB too, with backslash escapes on
	SQLite   Dialect = "sqlite"
)

// A Kind says what a token is.
type Kind uint8

// The kinds of tokens.
const (
	Space Kind = iota + 1
	Comment
	Word      // a keyword or a name without quotes
	Quoted    // a name in quotes
	Literal   // a string, with its prefix
	Dollar    // a string in dollar quotes
	Number    // with the letters that follow it
	Param     // $1
	Semicolon // the end of a statement
	Symbol    // one other character, or one of :: := =>
)

// IsBlank reports whether the token only separates others.
func (k Kind) IsBlank() bool { return k == Space || k == Comment }

// Next returns the kind and the length of the token that s, which is not empty,
// begins with. One that does not end takes up the rest; the server refuses such a
// text as a whole.
func Next(d Dialect, s string) (kind Kind, size int, ends bool) {
	switch c := s[0]; {
	case isSpace(c):
		return Space, span(s, isSpace), true
	case d == SQLite && strings.HasPrefix(s, "\ufeff"): // a space where a token may begin, part of a name elsewhere
		return Space, len("\ufeff"), true
	case startsLineComment(d, s):
		return Comment, lineLen(d, s), true
	case strings.HasPrefix(s, "/*"):
		return found(Comment, s, commentLen(d, s))
	case d == MySQL && strings.HasPrefix(s, "*/") && !strings.HasPrefix(s, "*/*"): // the end of one whose inside is run; in SELECT */* x */ another begins
		return Comment, 2, true
	case c == ';':
		return Semicolon, 1, true
	case startsWord(c), c == '$' && d == MySQL:
		return word(d, s)
	case IsDigit(c), c == '.' && len(s) > 1 && IsDigit(s[1]):
		return Number, numberLen(s), true
	case c == '\'', c == '"' && d == MySQL:
		return found(Literal, s, quotedLen(s, 0, d == MySQL))
	case c == '"', c == '`' && d != Postgres:
		return found(Quoted, s, quotedLen(s, 0, false))
	case c == '[' && d == SQLite:
		return found(Quoted, s, strings.IndexByte(s, ']')+1)
	case c == '$' && d == Postgres:
		return dollar(s)
	case strings.HasPrefix(s, "::"), strings.HasPrefix(s, ":="), strings.HasPrefix(s, "=>"):
		return Symbol, 2, true
	}
	return Symbol, 1, true
}

// found returns a token of size bytes, or of all of s if size is 0: no end.
func found(k Kind, s string, size int) (Kind, int, bool) {
	if size == 0 {
		return k, len(s), false
	}
	return k, size, true
}

func word(d Dialect, s string) (Kind, int, bool) {
	n := span(s, InWord)
	if d == Postgres && n == 1 {
		switch rest, c := s[1:], s[0]|0x20; {
		case c == 'e' && strings.HasPrefix(rest, "'"):
			return found(Literal, s, escapedLen(s))
		case (c == 'b' || c == 'x' || c == 'n') && strings.HasPrefix(rest, "'"):
			return found(Literal, s, quotedLen(s, 1, false))
		case c == 'u' && strings.HasPrefix(rest, "&'"):
			return found(Literal, s, quotedLen(s, 2, false))
		case c == 'u' && strings.HasPrefix(rest, `&"`):
			return found(Quoted, s, quotedLen(s, 2, false))
		}
	}
	return Word, n, true
}

// dollar is for $tag$...$tag$ and $1.
func dollar(s string) (Kind, int, bool) {
	n := 1 + span(s[1:], func(c byte) bool { return InWord(c) && c != '$' })
	switch {
	case n > 1 && IsDigit(s[1]):
		return Param, 1 + span(s[1:], IsDigit), true
	case n == len(s) || s[n] != '$':
		return Symbol, 1, true
	}
	tag := s[:n+1]
	end := strings.Index(s[len(tag):], tag)
	if end < 0 {
		return Dollar, len(s), false
	}
	return Dollar, end + 2*len(tag), true
}

// numberLen takes letters too: what a server makes of 12abc depends on its
// version, so that nobody should split it. A sign belongs to an exponent only
// before a digit: in 1e--x a comment begins.
func numberLen(s string) int {
	n := span(s, func(c byte) bool { return IsDigit(c) || c == '.' })
	if e := s[n:]; len(e) > 2 && e[0]|0x20 == 'e' && (e[1] == '+' || e[1] == '-') && IsDigit(e[2]) {
		n += 2 + span(e[2:], IsDigit)
	}
	if n < len(s) && startsWord(s[n]) {
		n += span(s[n:], InWord)
	}
	return n
}

func span(s string, in func(byte) bool) int {
	for i := range len(s) {
		if !in(s[i]) {
			return i
		}
	}
	return len(s)
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func startsWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

// IsDigit reports whether c is a decimal digit.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

// InWord reports whether c may be in a name without quotes.
func InWord(c byte) bool { return startsWord(c) || IsDigit(c) || c == '$' }
