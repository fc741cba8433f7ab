package migrations

import (
	"embed"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"github.com/go-fencing/fencing/internal/hint"
)

// ProtectOptions say how [Protect] protects a table.
type ProtectOptions struct {
	// Column is the version column, by its exact name: the token of the fence
	// under which the row rule has last written a row. UpdateRow of package pgguard
	// and the modes ModeRow and ModeBoth of gormguard stamp it; no other write does,
	// fenced or not. Defaults to "fence_token".
	Column string

	// NoColumn leaves the version column out, for tables that are never written
	// under the row rule.
	NoColumn bool

	// Trigger refuses writes from outside of a fence, with SQLSTATE UF004.
	Trigger bool

	// Resource is a SQL expression over the columns of a row that names the fence
	// which the row needs, such as 'inventory:' || sku. Columns are written bare
	// or, all of them, as NEW.column. If it gives NULL nobody may write the row.
	// Without it the trigger is content with any fence that was entered.
	Resource string

	// Schema is the fence schema, by its exact name. Defaults to "fencing".
	Schema string

	// LockTimeout bounds each wait for a lock on the table. Defaults to 3s.
	LockTimeout time.Duration
}

//go:embed protect_up.tmpl protect_down.tmpl
var protectFS embed.FS

var protectTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"ident": quoteIdent, "literal": quoteLiteral,
}).ParseFS(protectFS, "*.tmpl"))

// Protect returns the SQL that protects a table and the SQL that restores it
// exactly. It opens no connection. Both are plain SQL for one transaction on
// PostgreSQL 14 or later, fit for every tool of [RenderChanges].
//
// The table is written as in SQL: inventory, app.inventory, "App"."Odd Table".
//
// The version column is a bigint NOT NULL with the constant default 0, so that
// Postgres rewrites no row. A column of this name that is there already is used
// if it is a bigint NOT NULL, and then stays when the protection goes.
//
// The trigger looks at every row as it was stored. An UPDATE needs the fences of
// the old and of the new row; TRUNCATE is refused, unless there is no Resource
// and a fence was entered. It fires under session_replication_role = replica
// too, hence also where logical replication writes to the table. It stops
// accidents: the owner of the table can drop it, and who sets fencing.held by
// hand is let in.
//
// Partitions, present and future, are covered by their root. Two things are not
// passed on to a table that is made or attached later: TRUNCATE of a single new
// partition, and everything for a new child of INHERITS. Run the same up SQL
// again after that; it changes nothing that is in place, but takes the lock of the table
// that the triggers need, and so waits for transactions that write it. A partition that
// is detached is no longer protected, except from TRUNCATE.
//
// For the rest of its transaction the SQL leaves lock_timeout at the bound of its own
// waiting, see [ProtectOptions].
//
// The way down refuses a table that has neither the triggers of this schema nor the
// column: it was made for another schema, or the protection is off already. Without
// Trigger it drops the column if it was added, and asks for nothing.
//
// The SQL refuses at run time what it cannot protect: views, foreign and
// temporary tables, system catalogs, the fence schema itself, a partition or a
// child by itself, a column of another type, and with Trigger a trigger name that
// is taken and a child of several tables.
func Protect(table string, o ProtectOptions) (up, down string, err error) {
	p, err := newProtection(table, o)
	if err != nil {
		return "", "", fmt.Errorf("migrations: protect %q: %w", table, err)
	}
	if up, err = p.render("protect_up.tmpl"); err != nil {
		return "", "", err
	}
	if down, err = p.render("protect_down.tmpl"); err != nil {
		return "", "", err
	}
	return up, down, nil
}

// A protection is what the templates read. Names are raw there, Table is SQL.
type protection struct {
	Table, Schema, Column string
	Mark, Note            string // the comment on a column that was added
	LockTimeout           string
	Trigger               bool
	Rows                  []rowTrigger
	TruncateWhen          string // no condition: always refused
	Refuse                string // the trigger function
	Call                  string // it with its argument
	MigrateUp             string // the command that installs the schema
	Body, Text            string // dollar quotes that nothing inside can end
}

type rowTrigger struct{ Name, Event, When string }

// columnMark begins the comment on a column that Protect has added: only such a
// one is dropped again.
const columnMark = "fencing: token of the fence under which the row was last written"

// columnNote follows the mark.
const columnNote = " by the row rule: UpdateRow of pgguard, or ModeRow of gormguard; other writes leave it as it is"

func newProtection(table string, o ProtectOptions) (protection, error) {
	name, err := parseTable(table)
	if err != nil {
		return protection{}, err
	}
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if o.Column == "" {
		o.Column = "fence_token"
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = 3 * time.Second
	}
	switch {
	case o.NoColumn && !o.Trigger:
		return protection{}, errors.New("neither a column nor a trigger is asked for")
	case name.schema == "pg_temp" || strings.HasPrefix(name.schema, "pg_temp_"):
		return protection{}, errors.New("it is a temporary table, which no other session can write")
	case systemSchema(name.schema):
		return protection{}, errors.New("it is a system catalog")
	case name.schema == o.Schema:
		return protection{}, errors.New("it belongs to the fence schema")
	}
	if err := errors.Join(validateSchema(o.Schema), validateLockTimeout(o.LockTimeout)); err != nil {
		return protection{}, err
	}
	if err := validateName(o.Column); err != nil {
		return protection{}, fmt.Errorf("column %q: %w", o.Column, err)
	}
	p := protection{
		Table: name.String(), Schema: o.Schema, Column: o.Column, Mark: columnMark, Note: columnNote,
		LockTimeout: milliseconds(o.LockTimeout), Trigger: o.Trigger,
		Refuse: quoteIdent(o.Schema) + ".refuse_write()", MigrateUp: hint.Fencectl("migrate up", o.Schema),
	}
	if o.NoColumn {
		p.Column = ""
	}
	if err := p.conditions(o.Resource); err != nil {
		return protection{}, fmt.Errorf("resource %q: %w", o.Resource, err)
	}
	p.Body = dollarQuote("fencing", p.Table, p.Schema, p.Column, p.Call, p.Rows[0].When)
	p.Text = dollarQuote("sql", p.Call, p.Rows[0].When)
	return p, nil
}

// conditions sets the WHEN clauses. A condition that is not true refuses, NULL
// included. The triggers are AFTER triggers: another BEFORE trigger could still
// change the row, BEFORE INSERT fires for a row that ON CONFLICT then does not
// insert, and COPY inserts one by one under it. WHEN is evaluated as the row is
// written, and where it is false nothing is queued.
func (p *protection) conditions(resource string) error {
	insert := "current_setting('fencing.held', true) <> ''"
	remove := insert
	update := insert
	if resource != "" {
		r, err := parseResource(resource)
		if err != nil {
			return err
		}
		insert, remove = held(r.newRow), held(r.oldRow)
		update = insert + "\n         AND " + remove
		p.Note += "; of resource " + resource
		p.Call = strings.TrimSuffix(p.Refuse, ")") + quoteLiteral(strings.TrimSpace(resource)) + ")"
	} else {
		p.Call = p.Refuse
		p.TruncateWhen = "(" + insert + ") IS NOT TRUE"
	}
	p.Rows = []rowTrigger{
		{"fencing_insert", "INSERT", "(" + insert + ") IS NOT TRUE"},
		{"fencing_update", "UPDATE", "(" + update + ") IS NOT TRUE"},
		{"fencing_delete", "DELETE", "(" + remove + ") IS NOT TRUE"},
	}
	return nil
}

// held tests whether the transaction has entered the resource; the setting holds
// a line feed before, between and after the names. A line feed in a row's name
// is doubled, because it would match two neighbours. The collation is for
// columns whose own one cannot search.
func held(expr string) string {
	return "strpos(current_setting('fencing.held', true), E'\\n' || replace((" + expr + `)::text COLLATE "C", E'\n', E'\n\n') || E'\n') > 0`
}

// dollarQuote returns a quote that none of the texts contains.
func dollarQuote(tag string, texts ...string) string {
	quote := "$" + tag + "$"
	for n := 2; strings.Contains(strings.Join(texts, "\x00"), quote); n++ {
		quote = fmt.Sprintf("$%s%d$", tag, n)
	}
	return quote
}

func (p protection) render(name string) (string, error) {
	var b strings.Builder
	if err := protectTemplates.ExecuteTemplate(&b, name, p); err != nil {
		return "", fmt.Errorf("migrations: %w", err)
	}
	return b.String(), nil
}
