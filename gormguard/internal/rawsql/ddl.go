package rawsql

import (
	"regexp"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// A creation is what is known of a CREATE.
type creation struct {
	what     string // TABLE, TRIGGER, ...
	replaces bool   // CREATE OR REPLACE TABLE, which MariaDB does by a DROP
	body     bool   // BEGIN has been read, of a trigger and the like
	ends     bool   // and then END, or END and a label
}

// word reads CREATE [OR REPLACE] [DEFINER = user] what ...
func (k *creation) word(c *classifier, w string) {
	switch {
	case c.words == 1:
	case k.what == "":
		definer := c.last.Text == "=" || c.last.Text == "@"
		if !definer && !is(w, "OR", "REPLACE", "TEMP", "TEMPORARY", "UNLOGGED", "GLOBAL", "LOCAL", "DEFINER", "AGGREGATE", "CONSTRAINT") {
			k.what = w
			k.replaces = is(w, "TABLE") && is(c.previous, "REPLACE")
		}
	case !k.body:
		// Postgres has no such bodies but of functions, where a text may go on
		// after END with what is no label.
		k.body = is(w, "BEGIN") && c.depth == 0 && c.last.Text != "@" && c.Dialect != sqltext.Postgres && is(k.what, "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT") &&
			!is(c.previous, "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "EXISTS", "ON", "FOLLOWS", "PRECEDES", "SET", "UPDATE", "INTO", "FROM") // a name
	default:
		label := is(c.previous, "END") && !is(w, "IF", "CASE", "LOOP", "WHILE", "REPEAT", "FOR")
		k.ends = is(w, "END") || label
	}
}

// inBody reports whether a semicolon is one of those between BEGIN and END.
func (k *creation) inBody() bool { return k.body && !k.ends }

// writes reports whether a CREATE writes by itself: the SELECT of Postgres may do so
// in its WITH. What a trigger or a rule does is done later.
func (k *creation) writes(c *classifier) bool {
	return k.replaces || c.writes && c.Dialect == sqltext.Postgres && !is(k.what, "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "RULE", "POLICY")
}

// aCast is what GORM's Migrator writes after the column in ALTER COLUMN x TYPE t
// USING x::t.
var aCast = regexp.MustCompile(`^(?i:\s*::\s*("?\w+"?\.)?"?\w+"?( varying| precision)?(\s*\(\d+(,\s*\d+)?\))?( with(out)? time zone)?(\[\])*)+\s*(,|;|$)`)

// alter looks for what an ALTER does to rows: it takes them out of a table or brings
// them in, drops what is in them, or puts something else in its place. A new column,
// another type and the like do not.
func (c *classifier) alter(t Token) {
	if c.alters(t) {
		c.writes = true
	}
	if is(t.Text, "TYPE") {
		c.retyped = c.raw
	}
}

func (c *classifier) alters(t Token) bool {
	w := t.Text
	switch {
	case is(c.previous, "DROP"): // a column or a partition
		return t.Kind != Word || !is(w, "NOT", "DEFAULT", "CONSTRAINT", "INDEX", "KEY", "FOREIGN", "PRIMARY", "CHECK", "EXPRESSION", "IDENTITY")
	case is(c.previous, "RENAME"): // the table, or a column, which may be that of the version
		return t.Kind != Word || !is(w, "CONSTRAINT", "INDEX", "KEY")
	case is(c.previous, "INHERIT"):
		return c.tables.Has(w)
	case t.Kind != Word:
		return false
	case is(w, "CHANGE"): // MySQL: a new name, or the old one
		return c.Dialect == sqltext.MySQL
	case is(c.previous, "SET"):
		return is(w, "SCHEMA", "EXPRESSION")
	case is(c.previous, "CONVERT"):
		return is(w, "PARTITION", "TABLE")
	case is(w, "USING") && c.retyped != "":
		rest := strings.TrimLeft(c.SQL[c.pos:], " ")
		return is(c.retyped, "DATA") || !strings.HasPrefix(rest, c.retyped) || !aCast.MatchString(rest[len(c.retyped):])
	}
	return is(w, "ATTACH", "DETACH", "EXCHANGE", "TRUNCATE", "DISCARD", "IMPORT") || is(w, "IGNORE") && c.words == 2
}
