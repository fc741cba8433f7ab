package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/migrations"
)

// protected is what there is on a table, and the rule of its triggers.
type protected struct {
	migrations.Protection
	rule *string // the expression of --resource, empty for any fence; nil without triggers
}

func (p protected) changed(after protected) bool {
	return p.rule != nil && after.rule != nil && *p.rule != *after.rule
}

// fence says which one a write needs.
func (p protected) fence() string {
	switch {
	case p.rule == nil:
		return "none"
	case *p.rule == "":
		return "any fence"
	}
	return "the fence " + *p.rule
}

// inspect reads it from the catalog: the trigger has its expression as an argument.
func (p protection) inspect(ctx context.Context, tx pgx.Tx) (found protected, err error) {
	if found.Protection, err = migrations.Inspect(ctx, tx, p.table); err != nil {
		return found, err
	}
	const sql = `
SELECT pg_catalog.convert_from(pg_catalog.rtrim(t.tgargs, '\x00'::bytea), pg_catalog.getdatabaseencoding())
  FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) t.tgfoid
 WHERE t.tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)
   AND f.proname OPERATOR(pg_catalog.=) 'refuse_write' AND t.tgname OPERATOR(pg_catalog.~) '^fencing_(insert|update|delete)$' LIMIT 1`
	var rule string
	switch err := tx.QueryRow(ctx, sql, p.table).Scan(&rule); {
	case err == nil:
		found.rule = &rule
	case !errors.Is(err, pgx.ErrNoRows):
		return found, err
	}
	return found, nil
}

// names refuses an expression that names no fence: one that is NULL for every row, which
// nobody may write then, and one that is volatile, of which no writer knows what it will
// be. An owner who may not read the table, as EXPLAIN requires, has to know for himself.
func (p protection) names(ctx context.Context, tx pgx.Tx) error {
	if p.restore || !p.options.Trigger || p.options.Resource == "" {
		return nil
	}
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return p.planned(ctx, tx) })
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		return nil
	}
	return err
}

// planned asks the planner, and nothing is run: it folds what is NULL into a constant, and
// does not push a condition down to what is volatile.
func (p protection) planned(ctx context.Context, tx pgx.Tx) error {
	resource := "(" + p.options.Resource + ")::text"
	null, err := p.plan(ctx, tx, "SELECT "+resource+" FROM "+p.table+" AS new")
	if err != nil {
		return err
	}
	if len(null.Output) == 1 && null.Output[0] == "NULL::text" {
		return badUsage("--resource %q is NULL for every row, so nobody could write one; nothing was changed", p.options.Resource)
	}
	volatile, err := p.plan(ctx, tx, "SELECT FROM (SELECT "+resource+" AS name FROM "+p.table+" AS new) AS named WHERE name = 'x'")
	if err != nil {
		return err
	}
	if volatile.NodeType == "Subquery Scan" {
		return badUsage("--resource %q is declared volatile, as a function is by default: it may give another name each time, and no writer could enter that. "+
			"If it gives the same one, ALTER its function to be IMMUTABLE or STABLE; nothing was changed", p.options.Resource)
	}
	return nil
}

// A plan is the top of what EXPLAIN shows.
type plan struct {
	NodeType string `json:"Node Type"`
	Output   []string
}

func (p protection) plan(ctx context.Context, tx pgx.Tx, sql string) (plan, error) {
	var text string
	if err := tx.QueryRow(ctx, "EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) "+sql).Scan(&text); err != nil {
		return plan{}, p.unresolved(err)
	}
	var top []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &top); err != nil || len(top) != 1 {
		return plan{}, fmt.Errorf("%wEXPLAIN said %.80q", &silent{errServer}, text)
	}
	return top[0].Plan, nil
}
