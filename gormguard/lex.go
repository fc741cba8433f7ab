package gormguard

import (
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/sqlguard"
)

// A kind is what a token of SQL is, as far as a guard must know.
type kind uint8

const (
	word   kind = iota + 1 // an unquoted name, keyword or number
	quoted                 // a quoted name; text is without its quotes
	text                   // a string literal; text is without its quotes
	punct                  // one byte of anything else
)

type token struct {
	kind  kind
	text  string
	start int
}

// isName reports whether it can stand before a dot, as no number and parameter can.
func (t token) isName() bool {
	return t.kind == quoted || t.kind == word && t.text[0] != '$' && !sqltext.IsDigit(t.text[0])
}

// A lexer reads SQL without allocating. Text that two servers of the dialect, or two
// settings of one, read differently makes it odd, and odd text is judged by the words
// in it, wherever they stand.
type lexer struct {
	sql     string
	pos     int
	dialect sqlguard.Dialect
	odd     bool
	comment bool // a comment was skipped
}

func (l *lexer) next() (token, bool) {
	for l.pos < len(l.sql) {
		d := sqltext.Dialect(l.dialect)
		start := l.pos
		kind, size, ends := sqltext.Next(d, l.sql[start:])
		s := l.sql[start : start+size]
		l.pos += size
		l.odd = l.odd || !ends || sqltext.Ambiguous(d, l.sql[:start], s)
		switch kind {
		case sqltext.Space:
		case sqltext.Comment:
			l.comment = true
		case sqltext.Word, sqltext.Param:
			return token{word, s, start}, true
		case sqltext.Number:
			return l.number(s, start), true
		case sqltext.Quoted:
			return token{quoted, inside(s), start}, true
		case sqltext.Literal:
			if s[0] == '"' { // a name, or a string, by a setting of MySQL
				return token{quoted, inside(s), start}, true
			}
			return token{text, inside(s), start}, true
		case sqltext.Dollar:
			return token{text, s, start}, true
		default:
			l.pos = start + 1
			return token{punct, s[:1], start}, true
		}
	}
	return token{}, false
}

// number takes 5items for a word, of MySQL, and the dot before it for that of a
// qualified name.
func (l *lexer) number(s string, start int) token {
	if s[0] == '.' {
		l.pos = start + 1
		return token{punct, s[:1], start}
	}
	if end := strings.IndexFunc(s, func(r rune) bool { return r < 0x80 && !sqltext.InWord(byte(r)) }); end >= 0 {
		s = s[:end]
		l.pos = start + end
	}
	return token{word, s, start}
}

// inside is what is between the quotes; doubled ones stay so.
func inside(s string) string {
	switch s[0] {
	case '\'', '"', '`', '[':
		return s[1:max(1, len(s)-1)]
	}
	return s // with a prefix, as in E'a'
}

// followedBy reports whether the next byte that is no space is c.
func (l *lexer) followedBy(c byte) bool {
	rest := strings.TrimLeft(l.sql[l.pos:], " \t\r\n\f\v")
	return rest != "" && rest[0] == c
}
