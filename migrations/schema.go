package migrations

import (
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

const defaultSchema = "fencing"

// inSchema rewrites the library's own SQL for another schema. Only code is
// changed: the setting 'fencing.held', messages and comments keep their text.
func inSchema(sql, schema string) (string, error) {
	if schema == defaultSchema {
		return sql, nil
	}
	tokens, err := lex(sql)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	before := "" // the last token that is neither space nor comment
	for i, t := range tokens {
		text := t.text
		switch t.kind {
		case sqltext.Space, sqltext.Comment:
			b.WriteString(text)
			continue
		case sqltext.Word:
			if text == defaultSchema && (before == "SCHEMA" || i+1 < len(tokens) && tokens[i+1].text == ".") {
				text = quoteIdent(schema)
			}
		case sqltext.Dollar:
			tag, body := dollarBody(text)
			if body, err = inSchema(body, schema); err != nil {
				return "", err
			}
			text = tag + body + tag
		}
		b.WriteString(text)
		before = t.text
	}
	return b.String(), nil
}
