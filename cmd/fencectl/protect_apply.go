package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/migrations"
)

// applyProtection looks into the catalog before and after: the SQL finds only what
// it was made for, and leaves triggers of another schema and columns of another name
// alone without a word.
func (a *app) applyProtection(ctx context.Context, p protection, sql string) error {
	d, err := a.openDatabase()
	if err != nil {
		return err
	}
	defer d.close(ctx)
	var before, after protected
	err = pgx.BeginFunc(ctx, d, func(tx pgx.Tx) error {
		var err error
		if before, err = p.inspect(ctx, tx); errors.Is(err, migrations.ErrNoTable) {
			return p.missing(ctx, d, tx)
		} else if err != nil {
			return err
		}
		if err := p.fits(ctx, tx, before.Protection); err != nil {
			return err
		}
		if p.finds(before.Protection) { // else the SQL is right to refuse
			if _, err := tx.Exec(ctx, sql); err != nil {
				return p.unresolved(err)
			}
		}
		after, err = p.inspect(ctx, tx)
		if err != nil || before.rule != nil && !before.changed(after) { // what was let in before stays
			return err
		}
		return p.names(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", p.command(), p.table, wayOut(d.explain(err)))
	}
	if a.json {
		return a.printJSON(p.outcome(before, after))
	}
	return a.say("%s %s\n", p.table, p.says(before, after))
}

const insufficientPrivilege = "42501"

// wayOut says what to do where Postgres only says what is the matter.
func wayOut(err error) error {
	const lockNotAvailable = "55P03"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pgErr.Code == lockNotAvailable:
		return fmt.Errorf("it is in use by another transaction; nothing was changed, try again when it is quiet: %w", err)
	case ok && pgErr.Code == insufficientPrivilege:
		return fmt.Errorf("%w; connect as the owner of the table", err)
	}
	return err
}

func (p protection) command() string {
	if p.restore {
		return "protect --down"
	}
	return "protect"
}

// fits refuses to work with one fence schema on a table that has triggers of another.
func (p protection) fits(ctx context.Context, tx pgx.Tx, before migrations.Protection) error {
	if p.restore && before.Parent != "" {
		return badUsage("it is protected as a part of %s; nothing was changed; take the protection off that", before.Parent)
	}
	if !p.options.Trigger || len(before.Schemas) == 0 || slices.Contains(before.Schemas, p.options.Schema) {
		return nil
	}
	theirs := before.Schemas[0]
	remedy := "nothing was changed; run it with --schema " + hint.Word(theirs)
	if !p.restore {
		remedy += ", or take them off with it first"
	}
	version, err := migrations.Version(ctx, tx, migrations.WithSchema(p.options.Schema))
	if err != nil {
		return err
	}
	if version == 0 {
		return badUsage("the fence schema %q is not in this database, but %s has triggers of schema %q; %s", p.options.Schema, p.table, theirs, remedy)
	}
	return badUsage("%s has triggers of the fence schema %q, not of %q; %s", p.table, theirs, p.options.Schema, remedy)
}

// finds reports whether there is something to do.
func (p protection) finds(before migrations.Protection) bool {
	return !p.restore || len(before.Schemas) > 0 || slices.Contains(before.Columns, p.options.Column)
}

// missing says where the table was looked for.
func (p protection) missing(ctx context.Context, d *database, tx pgx.Tx) error {
	where := ""
	if !strings.Contains(p.table, ".") {
		var path string
		if err := tx.QueryRow(ctx, "SHOW search_path").Scan(&path); err != nil {
			return err
		}
		where = "; its search_path is " + path + ": name a table of another schema as schema.table"
	}
	return badUsage("there is no table %s in %s%s", p.table, d.address, where)
}

// columnOf finds the name in what Postgres says of a column that the row of a trigger
// does not have. Where its messages are in another language, its own words must do.
var columnOf = regexp.MustCompile(`^column new\.(.+) does not exist$`)

// unresolved says what is wrong with the expression, which is all in the SQL that was
// not made here.
func (p protection) unresolved(err error) error {
	const quotes = `write text in single quotes: --resource "'inventory:' || sku"`
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || p.restore {
		return err
	}
	switch pgErr.Code {
	case "42601": // syntax_error
		return fmt.Errorf("--resource %q is not a SQL expression; %s: %w", p.options.Resource, quotes, err)
	case "42703": // undefined_column
		if m := columnOf.FindStringSubmatch(pgErr.Message); m != nil {
			return fmt.Errorf("%s has no column %s; --resource %q is a SQL expression, %s: %w", p.table, m[1], p.options.Resource, quotes, err)
		}
	}
	return err
}

// An outcome is what a script learns. It is read from the catalog.
type outcome struct {
	Table     string   `json:"table"`
	Protected bool     `json:"protected"`
	Trigger   bool     `json:"trigger"`
	Resource  *string  `json:"resource,omitempty"`        // of the trigger, if there is one; empty: any fence
	Before    *string  `json:"resource_before,omitempty"` // if there was another one
	Columns   []string `json:"columns,omitempty"`         // version columns that --down has left
}

func (p protection) outcome(before, after protected) outcome {
	o := outcome{Table: p.table, Trigger: len(after.Schemas) > 0, Resource: after.rule}
	if before.changed(after) {
		o.Before = before.rule
	}
	o.Protected = o.Trigger || !p.restore
	if p.restore {
		o.Columns = after.Columns
	}
	return o
}

func (p protection) says(before, after protected) string {
	switch {
	case p.restore:
		return p.restored(before.Protection, after.Protection)
	case p.options.Trigger && before.changed(after):
		return "is protected: writes need " + after.fence() + " (before: " + before.fence() + ")"
	case p.options.Trigger:
		return "is protected: writes need " + after.fence()
	case len(after.Schemas) > 0:
		return "has its version column; its trigger from before stays as it was: writes need " + after.fence() + " (take it off with --down, change it with --trigger)"
	}
	return "has its version column; nothing refuses unguarded writes without --trigger"
}

func (p protection) restored(before, after migrations.Protection) string {
	text := "is no longer protected"
	switch {
	case len(after.Schemas) > 0:
		text = "is still protected by triggers of the fence schema " + hint.Word(after.Schemas[0]) + "; run it again with --schema " + hint.Word(after.Schemas[0])
	case len(before.Schemas) > 0 || len(before.Columns) > len(after.Columns):
	case len(after.Columns) > 0:
		text = "was not protected by a trigger"
	default:
		text = "was not protected"
	}
	for _, name := range after.Columns {
		text += fmt.Sprintf("; its column %q stays: name it with --column %s to drop it", name, hint.Word(name))
	}
	return text
}
