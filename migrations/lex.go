package migrations

import (
	"fmt"
	"strings"
)

type kind uint8

const (
	space   kind = iota + 1
	comment      // -- or /* */
	word         // an identifier without quotes, or a keyword
	quoted       // an identifier in double quotes
	literal      // a string, with its prefix
	dollar       // a string in dollar quotes
	number
	param  // $1
	symbol // one character, or one of :: := =>
)

// A token is a piece of SQL as Postgres divides it, apart from operators, which
// come as single symbols. The texts of all tokens together are the input.
type token struct {
	kind kind
	text string
}

// lex follows the flex rules of Postgres (src/backend/parser/scan.l) with
// standard_conforming_strings on.
func lex(sql string) ([]token, error) {
	var tokens []token
	for i := 0; i < len(sql); {
		k, n := nextToken(sql[i:])
		if n == 0 {
			return nil, fmt.Errorf("%.20q does not end", sql[i:])
		}
		tokens = append(tokens, token{k, sql[i : i+n]})
		i += n
	}
	return tokens, nil
}

// nextToken returns the first token's kind and length. The length of a token that
// does not end is 0.
func nextToken(s string) (kind, int) {
	c := s[0]
	switch {
	case isSpace(c):
		return space, span(s, isSpace)
	case strings.HasPrefix(s, "--"):
		if n := strings.IndexAny(s, "\r\n"); n >= 0 {
			return comment, n
		}
		return comment, len(s)
	case strings.HasPrefix(s, "/*"):
		return comment, blockComment(s)
	case c == '\'':
		return literal, closing(s, 0, false)
	case c == '"':
		return quoted, closing(s, 0, false)
	case c == '$':
		return dollarToken(s)
	case isDigit(c), c == '.' && len(s) > 1 && isDigit(s[1]):
		return number, numberLength(s)
	case isIdentStart(c):
		return wordToken(s)
	case strings.HasPrefix(s, "::"), strings.HasPrefix(s, ":="), strings.HasPrefix(s, "=>"):
		return symbol, 2
	}
	return symbol, 1
}

func wordToken(s string) (kind, int) {
	n := span(s, isIdentPart)
	switch rest := s[n:]; {
	case n == 1 && strings.HasPrefix(rest, "'") && strings.IndexByte("eEbBxXnN", s[0]) >= 0:
		return literal, closing(s, 1, s[0] == 'e' || s[0] == 'E')
	case n == 1 && (s[0] == 'u' || s[0] == 'U') && strings.HasPrefix(rest, "&'"):
		return literal, closing(s, 2, false)
	case n == 1 && (s[0] == 'u' || s[0] == 'U') && strings.HasPrefix(rest, `&"`):
		return quoted, closing(s, 2, false)
	}
	return word, n
}

// closing returns the length of a token whose quote opens at start. A doubled
// quote stands for itself.
func closing(s string, start int, backslash bool) int {
	q := s[start]
	for i := start + 1; i < len(s); i++ {
		switch {
		case backslash && s[i] == '\\':
			i++
		case s[i] != q:
		case i+1 < len(s) && s[i+1] == q:
			i++
		default:
			return i + 1
		}
	}
	return 0
}

func blockComment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

func dollarToken(s string) (kind, int) {
	n := 1 + span(s[1:], func(c byte) bool { return isIdentPart(c) && c != '$' })
	switch {
	case n > 1 && isDigit(s[1]):
		return param, 1 + span(s[1:], isDigit)
	case n == len(s) || s[n] != '$':
		return symbol, 1
	}
	tag := s[:n+1]
	end := strings.Index(s[len(tag):], tag)
	if end < 0 {
		return dollar, 0
	}
	return dollar, end + 2*len(tag)
}

// dollarBody divides a string in dollar quotes.
func dollarBody(s string) (tag, body string) {
	tag = s[:strings.IndexByte(s[1:], '$')+2]
	return tag, s[len(tag) : len(s)-len(tag)]
}

// numberLength takes letters too: what Postgres makes of 12abc depends on its
// version, so that nobody should split it.
func numberLength(s string) int {
	for i := range len(s) {
		c := s[i]
		exponentSign := (c == '+' || c == '-') && i > 0 && (s[i-1] == 'e' || s[i-1] == 'E')
		if !isIdentPart(c) && c != '.' && !exponentSign {
			return i
		}
	}
	return len(s)
}

func span(s string, in func(byte) bool) int {
	for i := range len(s) {
		if !in(s[i]) {
			return i
		}
	}
	return len(s)
}

func isSpace(c byte) bool { return strings.IndexByte(" \t\n\r\f\v", c) >= 0 }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isIdentStart(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func isIdentPart(c byte) bool { return isIdentStart(c) || isDigit(c) || c == '$' }
