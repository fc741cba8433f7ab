package migrations

import (
	"regexp"
	"strings"
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
		case space, comment:
			b.WriteString(text)
			continue
		case word:
			if text == defaultSchema && (before == "SCHEMA" || i+1 < len(tokens) && tokens[i+1].text == ".") {
				text = quoteIdent(schema)
			}
		case dollar:
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

var plainArgument = regexp.MustCompile(`^[\w.]+$`)

// fencectl returns a command line for the schema.
func fencectl(command, schema string) string {
	switch {
	case schema == defaultSchema:
		return "fencectl " + command
	case plainArgument.MatchString(schema):
		return "fencectl " + command + " --schema " + schema
	}
	return "fencectl " + command + " --schema '" + strings.ReplaceAll(schema, "'", `'\''`) + "'"
}
