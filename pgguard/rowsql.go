package pgguard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqltext"
)

// An Expression is a piece of SQL with its arguments; see [Expr].
type Expression struct {
	sql  string
	args []any
}

// Expr returns a piece of SQL for [RowUpdate], with ? in the place of each
// argument and ?? for an operator that is itself a question mark. The text becomes
// part of the statement: never build it from input.
func Expr(sql string, args ...any) Expression { return Expression{sql, args} }

// A query collects a statement and its arguments.
type query struct {
	sql  string
	args []any
}

// value appends an argument and returns its placeholder.
func (q *query) value(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *query) expression(e Expression) (string, error) {
	var b strings.Builder
	left := e.args
	open := 0
	for sql := e.sql; len(sql) > 0; {
		_, size, _ := sqltext.Next(sqltext.Postgres, sql) // a question mark in a literal is not one token
		switch sql[:size] {
		case "(":
			open++
		case ")":
			open--
		}
		if open < 0 { // it would end what it is put into
			break
		}
		switch {
		case strings.HasPrefix(sql, "??"):
			b.WriteByte('?')
			size = 2
		case sql[:size] != "?":
			b.WriteString(sql[:size])
		case len(left) == 0:
			return "", fmt.Errorf("expression %q has more ? than its %d arguments", e.sql, len(e.args))
		default:
			b.WriteString(q.value(left[0]))
			left = left[1:]
		}
		sql = sql[size:]
	}
	if open != 0 {
		return "", fmt.Errorf("the parentheses of expression %q do not match", e.sql)
	}
	if len(left) > 0 {
		return "", fmt.Errorf("expression %q has fewer ? than its %d arguments", e.sql, len(e.args))
	}
	return b.String(), nil
}

// statements returns the update, and the look at the row that explains why the
// update changed none. Columns are sorted, so that equal updates have equal texts
// and are prepared once.
func (u RowUpdate) statements(token guard.Token) (update, look query, err error) {
	if err := u.validate(); err != nil {
		return update, look, err
	}
	column := ident(u.Column)
	stamp := update.value(int64(token))
	sets := []string{column + " = " + stamp}
	for _, name := range slices.Sorted(maps.Keys(u.Set)) {
		value, isExpr := u.Set[name].(Expression)
		text := ""
		if isExpr {
			if text, err = update.expression(value); err != nil {
				return update, look, err
			}
			text = "(" + text + ")"
		} else {
			text = update.value(u.Set[name])
		}
		sets = append(sets, ident(name)+" = "+text)
	}
	table := u.Table.Sanitize()
	where, filter, err := u.conditions(&update)
	if err != nil {
		return update, look, err
	}
	// What was changed, and below the token, is a scalar subquery: of several rows it
	// makes an error of the server, which aborts the transaction.
	update.sql = "with changed as (update " + table + " set " + strings.Join(sets, ", ") +
		" where " + where + filter + " and coalesce(" + column + ", 0) <= " + stamp +
		" returning true) select coalesce((select * from changed), false)"

	where, filter, err = u.conditions(&look)
	look.sql = "select (select coalesce(" + column + ", 0) from " + table + " where " + where + ")," +
		" exists (select from " + table + " where " + where + filter + ")"
	return update, look, err
}

// conditions returns the condition on the key and, to be appended, the filter.
func (u RowUpdate) conditions(q *query) (where, filter string, err error) {
	var terms []string
	for _, name := range slices.Sorted(maps.Keys(u.Key)) {
		terms = append(terms, ident(name)+" = "+q.value(u.Key[name]))
	}
	if u.Filter.sql != "" {
		text, err := q.expression(u.Filter)
		if err != nil {
			return "", "", err
		}
		filter = " and (" + text + ")"
	}
	return strings.Join(terms, " and "), filter, nil
}

func (u RowUpdate) validate() error {
	if len(u.Table) == 0 {
		return errors.New("the table has no name")
	}
	if len(u.Key) == 0 {
		return errors.New("the key has no column, so it would not pin one row")
	}
	if u.Filter.sql == "" && len(u.Filter.args) > 0 {
		return errors.New("the filter has arguments and no text")
	}
	names := append(slices.Clone(u.Table), u.Column)
	for name, value := range u.Key {
		names = append(names, name)
		if value == nil {
			return fmt.Errorf("key column %q is nil, which equals nothing", name)
		}
		if _, ok := value.(Expression); ok {
			return fmt.Errorf("key column %q is an expression; use Filter", name)
		}
		if _, ok := u.Set[name]; ok {
			return fmt.Errorf("column %q is in Key and in Set", name)
		}
	}
	for name := range u.Set {
		names = append(names, name)
		if name == u.Column {
			return fmt.Errorf("column %q is in Set; it is the fence's own", name)
		}
	}
	for _, name := range names {
		if name == "" || strings.ContainsRune(name, 0) {
			return fmt.Errorf("name %q of a table or column is empty or has a NUL", name)
		}
	}
	return nil
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// explain explains the cardinality violation that both statements provoke, and that the
// column of the token is missing.
func (u RowUpdate) explain(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
	case pgErr.Code == "21000":
		return fmt.Errorf("the key pins several rows, nothing was written: %w", err)
	case pgErr.Code == "42703" && strings.Contains(pgErr.Message, `"`+u.Column+`"`): // undefined_column
		return fmt.Errorf("the table has no column %q, which keeps the token; add it with \"fencectl protect\", or name the one that it has in Column: %w", u.Column, err)
	}
	return err
}
