package migrations

import "strings"

// LexTexts returns the texts of the tokens of a piece of SQL.
func LexTexts(sql string) ([]string, error) {
	tokens, err := lex(sql)
	texts := make([]string, len(tokens))
	for i, t := range tokens {
		texts[i] = t.text
	}
	return texts, err
}

// ParseTable returns the parts of a table's name and its canonical spelling.
func ParseTable(s string) (parts []string, canonical string, err error) {
	t, err := parseTable(s)
	if err != nil {
		return nil, "", err
	}
	if t.schema == "" {
		return []string{t.name}, t.String(), nil
	}
	return []string{t.schema, t.name}, t.String(), nil
}

// ParseResource returns an expression for the new and for the old row.
func ParseResource(expr string) (newRow, oldRow string, err error) {
	r, err := parseResource(expr)
	return r.newRow, r.oldRow, err
}

// Unprefixed takes the rows off again.
func Unprefixed(s string) string { return strings.ReplaceAll(s, "NEW.", "") }

var (
	QuoteIdent    = quoteIdent
	QuoteLiteral  = quoteLiteral
	QuoteTableFor = quoteTableFor
)
