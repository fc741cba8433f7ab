package rawsql

import (
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// A Kind is what a token of SQL is, as far as a guard must know.
type Kind uint8

// The kinds.
const (
	Word   Kind = iota + 1 // an unquoted name, keyword or number
	Quoted                 // a quoted name; Text is without its quotes
	Text                   // a string literal; Text is without its quotes
	Punct                  // one byte of anything else
)

// A Token is one of those.
type Token struct {
	Kind  Kind
	Text  string
	start int
}

// Is reports whether it is one of these words, which are in capitals.
func (t Token) Is(words ...string) bool { return t.Kind == Word && is(t.Text, words...) }

// isName reports whether it can stand before a dot, as no number and parameter can.
func (t Token) isName() bool {
	return t.Kind == Quoted || t.Kind == Word && t.Text[0] != '$' && !sqltext.IsDigit(t.Text[0])
}

// A Lexer reads SQL without allocating. Text that two servers of the dialect, or two
// settings of one, read differently makes it Odd, and odd text is judged by the words
// in it, wherever they stand.
type Lexer struct {
	SQL     string
	Dialect sqltext.Dialect
	Odd     bool
	Comment bool // a comment was skipped
	pos     int
}

// Next returns the next token, if there is one.
func (l *Lexer) Next() (Token, bool) {
	for l.pos < len(l.SQL) {
		d := l.Dialect
		start := l.pos
		kind, size, ends := sqltext.Next(d, l.SQL[start:])
		s := l.SQL[start : start+size]
		l.pos += size
		l.Odd = l.Odd || !ends || sqltext.Ambiguous(d, l.SQL[:start], s)
		switch kind {
		case sqltext.Space:
		case sqltext.Comment:
			l.Comment = true
		case sqltext.Word, sqltext.Param:
			return Token{Word, s, start}, true
		case sqltext.Number:
			return l.number(s, start), true
		case sqltext.Quoted:
			return Token{Quoted, inside(s), start}, true
		case sqltext.Literal:
			if s[0] == '"' { // a name, or a string, by a setting of MySQL
				return Token{Quoted, inside(s), start}, true
			}
			return Token{Text, inside(s), start}, true
		case sqltext.Dollar:
			return Token{Text, s, start}, true
		default:
			l.pos = start + 1
			return Token{Punct, s[:1], start}, true
		}
	}
	return Token{}, false
}

// number takes 5items for a word, of MySQL, and the dot before it for that of a
// qualified name.
func (l *Lexer) number(s string, start int) Token {
	if s[0] == '.' {
		l.pos = start + 1
		return Token{Punct, s[:1], start}
	}
	if end := strings.IndexFunc(s, func(r rune) bool { return r < 0x80 && !sqltext.InWord(byte(r)) }); end >= 0 {
		s = s[:end]
		l.pos = start + end
	}
	return Token{Word, s, start}
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
func (l *Lexer) followedBy(c byte) bool {
	rest := strings.TrimLeft(l.SQL[l.pos:], " \t\r\n\f\v")
	return rest != "" && rest[0] == c
}
