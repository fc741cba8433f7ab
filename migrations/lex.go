package migrations

import (
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// A token is a piece of SQL. The texts of all tokens together are the input.
type token struct {
	kind sqltext.Kind
	text string
}

// lex divides SQL of Postgres.
func lex(sql string) ([]token, error) {
	var tokens []token
	for sql != "" {
		kind, size, ends := sqltext.Next(sqltext.Postgres, sql)
		if !ends {
			return nil, fmt.Errorf("%.20q does not end", sql)
		}
		tokens = append(tokens, token{kind, sql[:size]})
		sql = sql[size:]
	}
	return tokens, nil
}

// dollarBody divides a string in dollar quotes.
func dollarBody(s string) (tag, body string) {
	tag = s[:strings.IndexByte(s[1:], '$')+2]
	return tag, s[len(tag) : len(s)-len(tag)]
}
