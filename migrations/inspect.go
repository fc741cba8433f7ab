package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrNoTable: the table does not exist, or is not on the search path.
var ErrNoTable = errors.New("there is no such table")

// A Protection is what there is on a table of the SQL of [Protect].
type Protection struct {
	// Schemas are the fence schemas that its triggers and those of its parts belong
	// to: none without triggers, and not more than one unless parts that were
	// protected by themselves have become its children.
	Schemas []string

	// Columns are the version columns that Protect has added, by their exact names.
	// One that was there before is not among them.
	Columns []string

	// Parent is the table of which this one is a partition or a child, written as in
	// SQL, if that has triggers. It is the one to protect and to restore.
	Parent string
}

// Inspect reads from the catalogs how a table is protected, whichever schema and
// column the protection was given. The table is written as for [Protect]. The
// error is ErrNoTable where there is none.
func Inspect(ctx context.Context, db DBTX, table string) (p Protection, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("migrations: inspect %q: %w", table, err)
		}
	}()
	name, err := parseTable(table)
	if err != nil {
		return p, err
	}
	if isNil(db) {
		return p, errNilDatabase
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return p, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has only read
	var exists bool
	if err := tx.QueryRow(ctx, inspectSQL(name), pgx.QueryExecModeSimpleProtocol).Scan(&exists, &p.Schemas, &p.Columns, &p.Parent); err != nil {
		return p, err
	}
	if !exists {
		return p, ErrNoTable
	}
	return p, nil
}

// inspectSQL has its prefixes and casts for the reason that protect_up.tmpl gives.
// The schema of a trigger's function is asked for, not assumed: it may be another
// than the one that the caller has in mind.
func inspectSQL(table tableName) string {
	return `WITH RECURSIVE target AS (SELECT to_regclass(` + quoteLiteral(table.String()) + `)::oid AS oid), tree AS (
		SELECT oid FROM target
		UNION
		SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
	), ours AS (
		SELECT t.tgrelid, n.nspname FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
		 WHERE f.proname = 'refuse_write' AND t.tgname IN ('fencing_insert', 'fencing_update', 'fencing_delete', 'fencing_truncate')
	)
	SELECT oid IS NOT NULL,
	       ARRAY(SELECT DISTINCT nspname::text FROM ours JOIN tree ON tree.oid = ours.tgrelid ORDER BY 1),
	       ARRAY(SELECT attname::text FROM pg_attribute
	              WHERE attrelid = target.oid AND attnum > 0 AND NOT attisdropped
	                AND starts_with(col_description(attrelid, attnum::integer), ` + quoteLiteral(columnMark) + `) ORDER BY attnum),
	       coalesce((SELECT i.inhparent::regclass::text FROM pg_inherits i
	                  WHERE i.inhrelid = target.oid AND EXISTS (SELECT FROM ours WHERE tgrelid = i.inhparent) LIMIT 1), '')
	  FROM target`
}
