package gormguard

import (
	"strings"

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
	return t.kind == quoted || t.kind == word && t.text[0] != '$' && (t.text[0] < '0' || t.text[0] > '9')
}

// A lexer reads SQL without allocating. It does not have to understand what it
// reads, but must know where strings, names and comments end: text that two
// dialects or two server settings read differently makes it odd, and odd text is
// judged by the words in it, wherever they stand.
type lexer struct {
	sql     string
	pos     int
	dialect sqlguard.Dialect
	odd     bool
	comment bool // a comment was skipped
}

func (l *lexer) next() (token, bool) {
	for l.pos < len(l.sql) {
		start, c := l.pos, l.sql[l.pos]
		switch {
		case c <= ' ':
			l.pos++
		case l.dialect == sqlguard.SQLite && l.at("\ufeff"): // a space there, part of a name elsewhere
			l.pos += len("\ufeff")
		case l.skipComment():
			l.comment = true
		case c == '\'':
			// A backslash is part of a string, or escapes the quote, depending on
			// the dialect and on settings of the server.
			return token{text, l.enclosed('\''), start}, true
		case c == '"' || c == '`':
			l.odd = l.odd || c == '`' && l.dialect == sqlguard.Postgres // an operator
			return token{quoted, l.enclosed(c), start}, true
		case c == '[' && l.dialect == sqlguard.SQLite:
			return token{quoted, l.enclosed(']'), start}, true
		case c == '$' && l.dialect == sqlguard.Postgres && l.dollarTag() != "":
			return token{text, l.dollarQuoted(), start}, true
		case wordByte(c):
			for l.pos < len(l.sql) && wordByte(l.sql[l.pos]) {
				l.pos++
			}
			w := l.sql[start:l.pos]
			if strings.EqualFold(w, "U") && l.at("&") {
				l.odd = true // a name may be written in escapes
			}
			return token{word, w, start}, true
		default:
			l.pos++
			return token{punct, l.sql[start:l.pos], start}, true
		}
	}
	return token{}, false
}

// enclosed reads up to an end byte that is not doubled.
func (l *lexer) enclosed(end byte) string {
	l.pos++
	start := l.pos
	for l.pos < len(l.sql) {
		switch l.sql[l.pos] {
		case '\\':
			l.backslashes(start, end)
			continue
		case end:
			if end != ']' && l.pos+1 < len(l.sql) && l.sql[l.pos+1] == end {
				l.pos++
				break
			}
			l.pos++
			return l.sql[start : l.pos-1]
		}
		l.pos++
	}
	l.odd = true
	return l.sql[start:]
}

// backslashes reads a run of them. They escape each other or nothing, so an even
// number of them does not move the end, but an odd one may have escaped it.
func (l *lexer) backslashes(start int, end byte) {
	first := l.pos
	for l.at(`\`) {
		l.pos++
	}
	if l.dialect == sqlguard.SQLite || l.pos == len(l.sql) || l.sql[l.pos] != end {
		return
	}
	// In some character sets of MySQL a backslash may be the second byte of a letter.
	half := l.dialect == sqlguard.MySQL && l.sql[first-1] >= 0x80
	if half || (l.pos-first)%2 == 1 && !l.isEscape(start) {
		l.odd = true
	}
}

// isEscape reports whether the string that begins at start is that of LIKE ...
// ESCAPE '\' in Postgres. Only a server whose standard_conforming_strings is off
// reads it otherwise, where whoever wrote it would get an error.
func (l *lexer) isEscape(start int) bool {
	before := strings.TrimRight(l.sql[:start-1], " ")
	const escape = "ESCAPE"
	return l.dialect == sqlguard.Postgres && strings.HasPrefix(l.sql[start:], `\'`) && !strings.HasPrefix(l.sql[start:], `\''`) &&
		len(before) > len(escape) && is(before[len(before)-len(escape):], escape)
}

// dollarTag returns the tag with both its dollars, or "" where a dollar begins
// something else, such as $1.
func (l *lexer) dollarTag() string {
	for i := l.pos + 1; i < len(l.sql); i++ {
		switch c := l.sql[i]; {
		case c == '$':
			return l.sql[l.pos : i+1]
		case !wordByte(c) || i == l.pos+1 && '0' <= c && c <= '9':
			return ""
		}
	}
	return ""
}

func (l *lexer) dollarQuoted() string {
	tag := l.dollarTag()
	body := l.sql[l.pos+len(tag):]
	end := strings.Index(body, tag)
	if end < 0 {
		l.odd, l.pos = true, len(l.sql)
		return body
	}
	l.pos += len(tag) + end + len(tag)
	return body[:end]
}

// skipComment skips a comment at the position, or only its beginning where a
// server would run what is inside.
func (l *lexer) skipComment() bool {
	mysql := l.dialect == sqlguard.MySQL
	switch {
	case l.at("--") && (!mysql || l.pos+2 == len(l.sql) || l.sql[l.pos+2] <= ' '), mysql && l.at("#"):
		ends := "\n"
		if l.dialect == sqlguard.Postgres {
			ends = "\r\n"
		}
		if end := strings.IndexAny(l.sql[l.pos:], ends); end >= 0 {
			l.pos += end + 1
		} else {
			l.pos = len(l.sql)
		}
	case mysql && (l.at("/*!") || l.at("/*M!")):
		l.odd = true // some versions skip it
		for l.pos += 3; l.pos < len(l.sql) && (l.sql[l.pos] == '!' || '0' <= l.sql[l.pos] && l.sql[l.pos] <= '9'); {
			l.pos++
		}
	case mysql && l.at("*/"): // the end of such a one
		l.pos += 2
	case l.at("/*"):
		body := l.sql[l.pos+2:]
		end := strings.Index(body, "*/")
		if end < 0 {
			l.odd, l.pos = true, len(l.sql)
			return true
		}
		if strings.Contains(body[:end], "/*") {
			l.odd = true // nested or not, depending on the dialect
		}
		l.pos += 2 + end + 2
	default:
		return false
	}
	return true
}

func (l *lexer) at(s string) bool { return strings.HasPrefix(l.sql[l.pos:], s) }

// followedBy reports whether the next byte that is no space is c.
func (l *lexer) followedBy(c byte) bool {
	rest := strings.TrimLeft(l.sql[l.pos:], " \t\r\n\f\v")
	return rest != "" && rest[0] == c
}

// A name of Postgres may contain a dollar, and any byte above ASCII is part of a
// letter.
func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '$' || c >= 0x80
}
