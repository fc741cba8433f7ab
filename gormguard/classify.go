package gormguard

import (
	"strings"

	"github.com/go-fencing/fencing/sqlguard"
)

// A control is what a statement does to the transaction that it runs in.
type control uint8

const (
	controlNone control = iota
	controlSavepoint
	controlRelease
	controlRollbackTo
	controlEnd // ends it, or begins another one
)

// A verdict is what a text of SQL may do to guarded tables. It errs on the side of
// a write: a verb that writes, anywhere, together with the name of a guarded
// table where a table can stand.
type verdict struct {
	table     string // the guarded table that is written; "" if none is
	control   control
	savepoint string
	odd       bool // a comment, two statements, or text that cannot be read for certain
}

func classify(sql string, d sqlguard.Dialect, tables *tableSet) verdict {
	c := classifier{lexer: lexer{sql: sql, dialect: d}, tables: tables}
	c.run()
	c.out.odd = c.odd || c.comment || c.statements > 1
	if c.odd && c.out.table == "" {
		c.out.table = c.anywhere()
	}
	return c.out
}

// A classifier reads one text, which may be several statements.
type classifier struct {
	lexer
	tables *tableSet
	out    verdict

	statements int

	// of the statement that is being read
	first     string // its first word
	writes    bool
	mentioned string // the first guarded name in the place of a table

	inTables bool // a table's name can stand here
	into     bool // the next bracket holds the columns of INSERT INTO
	stack    uint64
	depth    int
	previous string // the previous word, unquoted
	words    int
	routine  bool // CREATE TRIGGER and the like, with a body of statements
	replaces bool // CREATE OR REPLACE TABLE, which MariaDB does by a DROP
}

func (c *classifier) run() {
	c.begin()
	for {
		t, ok := c.next()
		if !ok {
			break
		}
		switch t.kind {
		case word:
			c.words++
			c.word(t.text)
			c.previous = t.text
		case quoted, text: // SQLite takes 'items' for a name where a table must stand
			if c.first == "" {
				c.first = "?"
			}
			if is(c.first, "ALTER") && is(c.previous, "DROP") {
				c.writes = true
			}
			if c.namesSavepoint() {
				c.out.savepoint = t.text
			}
			c.name(t.text)
			c.previous = ""
		case punct:
			c.punct(t.text[0])
		}
	}
	c.end()
}

func (c *classifier) begin() {
	c.first, c.writes, c.mentioned, c.previous, c.words = "", false, "", "", 0
	c.routine, c.replaces = false, false
	c.inTables, c.into, c.stack, c.depth = true, false, 0, 0
}

// end judges the statement that has been read.
func (c *classifier) end() {
	if c.first == "" {
		return
	}
	c.statements++
	table := c.mentioned
	switch {
	case is(c.first, "CREATE") && !c.replaces, !c.writes && (c.passive() || is(c.first, "ALTER", "DROP")):
		table = ""
	case !c.writes: // CALL, DO, EXECUTE, and what is unknown: strings may hold SQL
		table = c.anywhereIn(c.sql)
	}
	if c.out.table == "" {
		c.out.table = table
	}
}

func (c *classifier) punct(b byte) {
	switch b {
	case '(':
		c.stack <<= 1
		if c.inTables {
			c.stack |= 1
		}
		c.depth++
		if c.into {
			c.inTables, c.into = false, false
		}
	case ')':
		c.inTables = c.stack&1 == 1
		c.stack >>= 1
		c.depth--
		if c.depth < 0 || c.depth > 60 {
			c.odd = true
		}
	case ';':
		// What is between BEGIN and END of a trigger's body runs later.
		if c.routine && !is(c.previous, "END") {
			break
		}
		c.end()
		c.begin()
	}
	if b != '.' {
		c.previous = ""
	}
}

func (c *classifier) word(w string) {
	if c.first == "" {
		c.first = w
		c.opening(w)
	} else if c.words == 2 && is(c.first, "PREPARE") && is(w, "TRANSACTION") || is(c.first, "SET") && is(w, "AUTOCOMMIT") {
		c.out.control = controlEnd
	}
	c.savepointName(w)
	if is(c.first, "CREATE") && c.words < 9 && c.dialect != sqlguard.Postgres && is(w, "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT") {
		c.routine = true
	}
	if c.words == 4 && is(c.first, "CREATE") && is(c.previous, "REPLACE") && is(w, "TABLE") {
		c.replaces = true
	}
	if is(c.first, "ALTER") && is(c.previous, "DROP") && !is(w, "NOT", "DEFAULT", "CONSTRAINT", "INDEX", "KEY", "FOREIGN", "PRIMARY", "CHECK", "EXPRESSION", "IDENTITY") {
		c.writes = true // a column or a partition
	}
	if len(w) > len("DUPLICATE") {
		c.name(w)
		return
	}
	switch k := keyword(w); k {
	case kwInsert, kwReplace:
		if !c.followedBy('(') {
			c.writes = true
		}
		c.inTables = true
	case kwUpdate:
		// FOR UPDATE and FOR NO KEY UPDATE lock; ON UPDATE is part of a constraint.
		if !is(c.previous, "FOR", "KEY", "ON") {
			c.writes = true
		}
		c.inTables = true
	case kwDelete:
		if !is(c.previous, "ON") {
			c.writes = true
		}
		c.inTables = true
	case kwMerge:
		c.writes, c.inTables = true, true
	case kwDestroys:
		if c.words == 1 && !is(w, "DROP") || c.words > 1 && is(c.first, "ALTER") && !is(w, "DROP") {
			c.writes = true
		}
		c.inTables = true
	case kwTable: // TABLE, COLUMN, PARTITION
		if is(c.first, "DROP") && is(w, "TABLE", "TABLES") {
			c.writes = true
		}
		c.inTables = true
	case kwInto:
		c.inTables, c.into = true, true
	case kwFrom:
		if !is(c.previous, "DISTINCT") {
			c.inTables = true
		}
	case kwOn:
		c.inTables = true
	case kwOff:
		c.inTables, c.into = false, false
	default:
		c.name(w)
	}
}

func (c *classifier) name(s string) {
	if c.inTables && c.mentioned == "" && c.tables.has(s) {
		c.mentioned = s
	}
}

// passive reports whether the first word begins a statement that writes no row of
// a table by itself.
func (c *classifier) passive() bool {
	return is(c.first, "SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "PRAGMA", "SET", "RESET", "BEGIN", "START", "COMMIT",
		"ROLLBACK", "SAVEPOINT", "RELEASE", "ABORT", "END", "DECLARE", "FETCH", "MOVE", "CLOSE", "ANALYZE", "VACUUM", "COMMENT", "GRANT", "REVOKE", "LISTEN",
		"UNLISTEN", "NOTIFY", "DISCARD", "DEALLOCATE", "PREPARE", "LOCK", "UNLOCK", "USE", "KILL", "FLUSH", "OPTIMIZE", "REINDEX", "CLUSTER", "CHECKPOINT", "CHECK", "ATTACH", "DETACH", "REFRESH")
}

// opening notes what the first word of a statement does to the transaction.
func (c *classifier) opening(w string) {
	switch {
	case is(w, "COMMIT", "ROLLBACK", "ABORT", "END", "BEGIN", "START"):
		c.out.control = controlEnd
	case is(w, "SAVEPOINT"):
		c.out.control = controlSavepoint
	case is(w, "RELEASE"):
		c.out.control = controlRelease
	case c.dialect == sqlguard.MySQL && is(w, "CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "LOCK", "UNLOCK", "GRANT", "REVOKE", "ANALYZE", "OPTIMIZE", "FLUSH"):
		c.out.control = controlEnd // MySQL commits before these
	}
}

// savepointName reads on: ROLLBACK [WORK] TO [SAVEPOINT] name.
func (c *classifier) savepointName(w string) {
	switch {
	case c.words < 2:
	case is(c.first, "ROLLBACK", "ABORT") && is(w, "TO"):
		c.out.control = controlRollbackTo
	case c.namesSavepoint() && !is(w, "SAVEPOINT"):
		c.out.savepoint = w
	}
}

func (c *classifier) namesSavepoint() bool {
	return c.out.control >= controlSavepoint && c.out.control <= controlRollbackTo && c.out.savepoint == ""
}

// anywhere judges text that cannot be read for certain.
func (c *classifier) anywhere() string {
	lower := strings.ToLower(c.sql)
	for _, verb := range []string{"insert", "update", "delete", "replace", "merge", "truncate", "copy", "call", "do", "execute", "load", "drop", "rename"} {
		if strings.Contains(lower, verb) {
			return c.anywhereIn(lower)
		}
	}
	return ""
}

func (c *classifier) anywhereIn(sql string) string {
	lower := strings.ToLower(sql)
	for _, name := range c.tables.names() {
		if strings.Contains(lower, name) || strings.Contains(lower, `u&"`) {
			return name
		}
	}
	return ""
}

func is(w string, words ...string) bool {
	for _, k := range words {
		if len(w) == len(k) && strings.EqualFold(w, k) {
			return true
		}
	}
	return false
}

type keywordClass uint8

const (
	kwNone keywordClass = iota
	kwInsert
	kwReplace
	kwUpdate
	kwDelete
	kwMerge
	kwDestroys
	kwTable
	kwInto
	kwFrom
	kwOn  // a table follows
	kwOff // anything but a table follows
)

// keyword looks up a word of up to nine bytes.
func keyword(w string) keywordClass {
	var upper [9]byte
	for i := range len(w) {
		c := w[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	switch string(upper[:len(w)]) {
	case "INSERT":
		return kwInsert
	case "REPLACE":
		return kwReplace
	case "UPDATE":
		return kwUpdate
	case "DELETE":
		return kwDelete
	case "MERGE":
		return kwMerge
	case "TRUNCATE", "RENAME", "EXCHANGE", "COPY", "LOAD", "DROP":
		return kwDestroys
	case "TABLE", "TABLES", "COLUMN", "PARTITION":
		return kwTable
	case "INTO":
		return kwInto
	case "FROM":
		return kwFrom
	case "JOIN", "USING", "ONLY", "LOCK", "ALTER":
		return kwOn
	case "SET", "WHERE", "VALUES", "VALUE", "RETURNING", "ON", "SELECT", "HAVING", "BY", "LIMIT", "DUPLICATE", "CONFLICT", "WHEN", "DEFAULT":
		return kwOff
	default:
		return kwNone
	}
}
