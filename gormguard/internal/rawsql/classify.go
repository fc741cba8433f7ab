package rawsql

import (
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// A Verdict is what a text of SQL may do to guarded tables. It errs on the side of
// a write: a verb that writes, anywhere, together with the name of a guarded
// table where a table can stand.
type Verdict struct {
	Table   string // the guarded table that is written; "" if none is
	Several bool   // statements
	Odd     bool   // that, a comment, or text that cannot be read for certain
	Guessed bool   // the table, by the words of such a text alone, wherever they stand
}

// Classify reads a text, which may be several statements.
func Classify(sql string, d sqltext.Dialect, tables *Tables) Verdict {
	c := classifier{Lexer: Lexer{SQL: sql, Dialect: d}, tables: tables}
	c.run()
	c.out.Several = c.statements > 1
	c.out.Odd = c.Odd || c.Comment || c.out.Several
	if c.Odd && c.out.Table == "" {
		c.out.Table = c.anywhere()
		c.out.Guessed = c.out.Table != ""
	}
	return c.out
}

// A classifier reads one text, which may be several statements.
type classifier struct {
	Lexer
	tables *Tables
	out    Verdict

	statements int

	// of the statement that is being read
	first     string // its first word
	writes    bool
	mentioned string // the first guarded name in the place of a table that is written

	frame           // of the bracket that is being read
	outer [60]frame // of those around it
	depth int
	into  bool // the next bracket holds the columns of INSERT INTO

	analyzed bool // ANALYZE was read

	last     Token  // the previous one
	raw      string // as it is written
	dotted   bool   // it was the dot after a name
	previous string // the previous word, unquoted
	words    int
	create   creation
	retyped  string // the column of ALTER COLUMN ... TYPE, as it is written
}

// A frame is what is known of the place in a statement, or in a bracket of it.
type frame struct {
	inTables bool // a table's name can stand here
	reads    bool // but it is only read: that of a SELECT, or of UPDATE ... FROM
	list     bool // an UPDATE or DELETE of MySQL: after a comma there is one more table
	query    bool // FROM is that of a statement, and not of EXTRACT(x FROM y)
}

func (c *classifier) run() {
	c.begin()
	for {
		t, ok := c.Next()
		if !ok {
			break
		}
		switch t.Kind {
		case Word:
			c.words++
			c.word(t)
			c.previous = t.Text
			if c.dotted {
				c.previous = "" // for it was no keyword
			}
		case Quoted, Text: // SQLite takes 'items' for a name where a table must stand
			if c.first == "" {
				c.first = "?"
			}
			if is(c.first, "ALTER") {
				c.alter(t)
			}
			if t.Kind == Quoted || c.Dialect == sqltext.SQLite {
				c.name(t.Text)
			}
			c.previous = ""
		case Punct:
			c.punct(t.Text[0])
		}
		c.dotted = t.Text == "." && t.Kind == Punct && c.last.isName()
		c.last, c.raw = t, c.SQL[t.start:c.pos]
	}
	c.end()
}

func (c *classifier) begin() {
	c.first, c.writes, c.mentioned, c.previous, c.words = "", false, "", "", 0
	c.create, c.retyped = creation{}, ""
	c.frame, c.depth, c.into, c.analyzed = frame{inTables: true, query: true}, 0, false, false
}

// end judges the statement that has been read.
func (c *classifier) end() {
	if c.first == "" {
		return
	}
	c.statements++
	table := c.mentioned
	switch {
	case is(c.first, "EXPLAIN", "DESCRIBE", "DESC") && !c.analyzed:
		table = "" // it shows the plan, and runs nothing
	case is(c.first, "CREATE") && !c.create.writes(c), !c.writes && (c.passive() || is(c.first, "ALTER", "DROP")):
		table = ""
	case !c.writes: // CALL, DO, EXECUTE, and what is unknown: strings may hold SQL
		table = c.anywhereIn()
	}
	if c.out.Table == "" {
		c.out.Table = table
	}
}

func (c *classifier) punct(b byte) {
	switch b {
	case '(':
		if c.depth >= 0 && c.depth < len(c.outer) {
			c.outer[c.depth] = c.frame
		} else {
			c.Odd = true
		}
		c.depth++
		c.query = false
		if c.last.Kind != Punct && !is(c.last.Text, "JOIN", "STRAIGHT_JOIN", "UPDATE", "FROM", "IGNORE", "LOW_PRIORITY") {
			c.list = false // of a function, or after IN
		}
		if c.into {
			c.inTables, c.into = false, false
		}
	case ')':
		c.depth--
		if c.depth < 0 || c.depth >= len(c.outer) {
			c.Odd = true
			break
		}
		c.frame = c.outer[c.depth]
	case '=':
		if is(c.first, "ALTER") && is(c.previous, "RENAME") { // MySQL: RENAME [=|TO|AS] name
			c.writes = true
		}
	case ',':
		c.inTables = c.inTables || c.list
	case ';':
		if c.create.inBody() {
			break // it runs later
		}
		c.end()
		c.begin()
	}
	if b != '.' {
		c.previous = ""
	}
}

func (c *classifier) word(t Token) {
	w := t.Text
	if c.dotted { // no keyword, as in i.update
		c.name(w)
		return
	}
	if c.first == "" {
		c.first = w
	}
	switch {
	case is(c.first, "CREATE"):
		c.create.word(c, w)
	case is(c.first, "ALTER"):
		c.alter(t)
	case c.words == 2 && c.Dialect == sqltext.MySQL && (is(c.first, "SET") && is(w, "STATEMENT") || is(c.first, "BEGIN") && is(w, "NOT")):
		c.Odd = true // SET STATEMENT ... FOR, BEGIN NOT ATOMIC: other statements follow
	}
	switch {
	case len(w) <= len("DUPLICATE"):
		c.keyword(w)
	case is(w, "STRAIGHT_JOIN"):
		c.inTables = true
	default:
		c.name(w)
	}
}

func (c *classifier) keyword(w string) {
	c.name(w) // lock and copy may be names
	if is(c.first, "GRANT", "REVOKE") {
		return // its verbs are privileges
	}
	c.analyzed = c.analyzed || is(w, "ANALYZE", "ANALYSE")
	switch keyword(w) {
	case kwInsert, kwReplace:
		switch {
		case c.followedBy('('): // a function
		case is(c.first, "CREATE") && is(c.previous, "OR"):
		default:
			c.verb()
		}
	case kwUpdate:
		switch {
		case is(c.previous, "FOR", "ON"): // a lock; a part of a constraint
		case is(c.previous, "KEY"): // FOR NO KEY UPDATE; ON DUPLICATE KEY UPDATE, and columns
			c.inTables = false
		default:
			c.verb()
			c.list = c.Dialect == sqltext.MySQL
		}
	case kwDelete:
		if !is(c.previous, "ON") {
			c.verb()
			c.list = c.Dialect == sqltext.MySQL
		}
	case kwMerge:
		c.verb()
	case kwDestroys:
		if c.words == 1 && !is(w, "DROP", "COPY") {
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
		if is(c.first, "COPY") && c.depth == 0 {
			c.writes = true
		}
		if !is(c.previous, "DISTINCT") && c.query {
			c.inTables = true
		}
	case kwOn:
		c.inTables = true
		if is(w, "ONLY") {
			c.into = false // MERGE INTO ONLY (items)
		}
		if is(w, "USING") && c.Dialect != sqltext.MySQL && !is(c.first, "ALTER") { // MySQL may name there what it deletes from
			c.reads = true
		}
	case kwOff:
		c.off(w)
	}
}

// verb begins what writes, in this bracket.
func (c *classifier) verb() {
	c.writes = true
	c.frame, c.into = frame{inTables: true, query: true}, false
}

// off ends the place of tables. Some of these words may be the name of one, so it
// is not the end of a list of tables that are written: only SET is in an UPDATE, and
// WHERE in a DELETE, where no such name can stand without quotes.
func (c *classifier) off(w string) {
	if is(c.first, "TRUNCATE", "DROP", "RENAME", "ALTER") {
		return // there may be more tables to the end
	}
	if c.followedBy('.') {
		return // a schema of that name
	}
	c.inTables, c.into = false, false
	switch {
	case is(w, "SELECT"):
		c.reads, c.list, c.query = true, false, true
	case is(w, "SET"):
		c.list = false
		if c.Dialect != sqltext.MySQL { // UPDATE ... SET ... FROM; MySQL names all tables before it
			c.reads = true
		}
	case is(w, "WHERE"):
		c.list = false
	}
}

// name takes a name, unless it is that of the schema before a table.
func (c *classifier) name(s string) {
	if c.inTables && !c.reads && c.mentioned == "" && c.tables.Has(s) && !c.followedBy('.') {
		c.mentioned = s
	}
}

// passive reports whether the first word begins a statement that writes no row of
// a table by itself.
func (c *classifier) passive() bool {
	if is(c.first, "PREPARE") {
		return c.Dialect != sqltext.MySQL // the statement is in a text there
	}
	return is(c.first, "SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "PRAGMA", "SET", "RESET", "BEGIN", "START", "COMMIT",
		"ROLLBACK", "SAVEPOINT", "RELEASE", "ABORT", "END", "DECLARE", "FETCH", "MOVE", "CLOSE", "ANALYZE", "VACUUM", "COMMENT", "GRANT", "REVOKE", "LISTEN",
		"UNLISTEN", "NOTIFY", "DISCARD", "DEALLOCATE", "COPY", "LOCK", "UNLOCK", "USE", "KILL", "FLUSH", "OPTIMIZE", "REINDEX", "CLUSTER", "CHECKSUM", "CHECKPOINT", "CHECK", "ATTACH", "DETACH", "REFRESH")
}

// anywhere judges text that cannot be read for certain.
func (c *classifier) anywhere() string {
	lower := strings.ToLower(c.SQL)
	for _, verb := range []string{"insert", "update", "delete", "replace", "merge", "truncate", "copy", "call", "do", "execute", "load", "drop", "rename", "alter", "prepare", "import"} {
		if containsWord(lower, verb) {
			return c.anywhereIn()
		}
	}
	return ""
}

// anywhereIn looks for names in the whole text, and in strings. There one may follow
// an escape, as in '\nitems'. A name that is written in escapes may be any, and is that
// of the table as it stands there.
func (c *classifier) anywhereIn() string {
	lower := strings.ToLower(c.SQL)
	escapes := strings.Contains(lower, `\`)
	names := c.tables.Names()
	for _, name := range names {
		if containsWord(lower, name) || escapes && strings.Contains(lower, name) {
			return name
		}
	}
	if start := strings.Index(lower, `u&"`); start >= 0 && len(names) > 0 {
		name := lower[start:]
		if end := strings.IndexByte(name[len(`u&"`):], '"'); end >= 0 {
			name = name[:len(`u&"`)+end+1]
		}
		return name
	}
	return ""
}
