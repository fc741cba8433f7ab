package migrations

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// maxIdent is what Postgres keeps of a name; it cuts the rest off with a mere
// notice.
const maxIdent = 63

// A tableName is a table's name after folding, with the schema empty where it is
// left to the search path.
type tableName struct{ schema, name string }

func (t tableName) String() string {
	if t.schema == "" {
		return quoteIdent(t.name)
	}
	return quoteIdent(t.schema) + "." + quoteIdent(t.name)
}

// parseTable reads a name as it is written in SQL: table or schema.table, each
// part folded to lower case unless it is in double quotes.
func parseTable(s string) (tableName, error) {
	tokens, err := lex(s)
	if err != nil {
		return tableName{}, err
	}
	var parts []string
	for i, t := range tokens {
		if i%2 == 1 {
			if t.text != "." {
				return tableName{}, fmt.Errorf("unexpected %q after the name; a name that is not of letters, digits and _ needs double quotes", t.text)
			}
			continue
		}
		part, err := identOf(t)
		if err != nil {
			return tableName{}, err
		}
		parts = append(parts, part)
	}
	switch {
	case len(parts) == 0:
		return tableName{}, errors.New("the name is empty")
	case len(tokens)%2 == 0:
		return tableName{}, errors.New("the name ends with a dot")
	case len(parts) > 2:
		return tableName{}, errors.New("the name has more parts than schema.table")
	case len(parts) == 1:
		return tableName{name: parts[0]}, nil
	}
	return tableName{schema: parts[0], name: parts[1]}, nil
}

func identOf(t token) (string, error) {
	name := ""
	switch {
	case t.kind == sqltext.Word:
		name = foldASCII(t.text)
	case t.kind == sqltext.Quoted && t.text[0] == '"':
		name = strings.ReplaceAll(t.text[1:len(t.text)-1], `""`, `"`)
	default:
		return "", fmt.Errorf("unexpected %q where a name should be", t.text)
	}
	return name, validateName(name)
}

// foldASCII folds as Postgres does in UTF-8: letters beyond ASCII stay.
func foldASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func validateName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxIdent:
		return fmt.Errorf("the name has %d bytes, Postgres keeps %d", len(name), maxIdent)
	case !utf8.ValidString(name):
		return errors.New("the name is not valid UTF-8")
	case strings.IndexFunc(name, unicode.IsControl) >= 0:
		return errors.New("the name has a control character")
	}
	return nil
}

// quoteIdent writes a name so that SQL reads exactly it, with quotes only where
// they are needed.
func quoteIdent(name string) string {
	bare := name != "" && !sqltext.IsDigit(name[0]) && !reserved[name]
	for i := range len(name) {
		c := name[i]
		bare = bare && ('a' <= c && c <= 'z' || sqltext.IsDigit(c) || c == '_')
	}
	if bare {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// quoteLiteral writes a string as SQL. The E form does not depend on
// standard_conforming_strings.
func quoteLiteral(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

// reserved has the keywords that are not a column or a table without quotes:
// those that pg_get_keywords() calls R or T, up to Postgres 18.
var reserved = setOf(`all analyse analyze and any array as asc asymmetric authorization binary both case cast check
	collate collation column concurrently constraint create cross current_catalog current_date current_role
	current_schema current_time current_timestamp current_user default deferrable desc distinct do else end except
	false fetch for foreign freeze from full grant group having ilike in initially inner intersect into is isnull
	join lateral leading left like limit localtime localtimestamp natural not notnull null offset on only or order
	outer overlaps placing primary references returning right select session_user similar some symmetric system_user
	table tablesample then to trailing true union unique user using variadic verbose when where window with`)

func setOf(words string) map[string]bool {
	set := make(map[string]bool)
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}
