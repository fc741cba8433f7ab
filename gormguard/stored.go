package gormguard

import (
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/sqlguard"
)

// reading returns a query of rows of the statement's table, to be asked for their
// fences. In MySQL it locks them, as the statement is about to: a plain read there
// would see them as they were when the transaction began.
func reading(db *gorm.DB) *gorm.DB {
	stmt := db.Statement
	q := db.Session(&gorm.Session{NewDB: true, SkipHooks: true}).Model(reflect.New(stmt.Schema.ModelType).Interface())
	q.Statement.Table, q.Statement.TableExpr, q.Statement.Unscoped = stmt.Table, stmt.TableExpr, stmt.Unscoped
	if dialect, err := sqlguard.ParseDialect(db.Name()); err == nil && dialect == sqlguard.MySQL {
		q = q.Clauses(clause.Locking{Strength: "UPDATE"})
	}
	return q
}

// stored returns a query of the rows that an update or a delete is about to meet, or
// nil if GORM will refuse it for want of a WHERE. Where it cannot be sure which they
// are, it finds more.
func stored(db *gorm.DB, update bool) *gorm.DB {
	stmt := db.Statement
	q := reading(db)
	to := q.Statement
	c, conditions := stmt.Clauses["WHERE"]
	if conditions {
		if where, ok := c.Expression.(clause.Where); ok { // building it may change their order
			c.Expression = clause.Where{Exprs: slices.Clone(where.Exprs)}
		}
		to.Clauses["WHERE"] = c
	}
	if update {
		for _, c := range stmt.Schema.UpdateClauses {
			if soft, ok := c.(gorm.SoftDeleteUpdateClause); ok {
				to.AddClause(soft) // it brackets what has an OR, before the keys
			}
		}
	}
	if keys := keysOf(stmt, update); len(keys) > 0 {
		to.AddClause(clause.Where{Exprs: keys})
	} else if !conditions && !db.AllowGlobalUpdate {
		return nil
	}
	build := stmt.BuildClauses
	if !update && !stmt.Unscoped && len(stmt.Schema.DeleteClauses) > 0 { // soft delete
		build, update = db.Callback().Update().Clauses, true
	}
	from(stmt, to, build, update)
	if ordersByKey(stmt) { // else the limit may be at other rows
		for _, name := range []string{"ORDER BY", "LIMIT"} {
			if c, ok := stmt.Clauses[name]; ok && slices.Contains(build, name) {
				to.Clauses[name] = c
			}
		}
	}
	return q
}

// from gives a query the tables of an update or a delete: UPDATE names its own, and
// others in FROM; the FROM of DELETE has them all.
func from(stmt, to *gorm.Statement, build []string, update bool) {
	several := severalTables(stmt.TableExpr)
	if given, ok := stmt.Clauses["FROM"].Expression.(clause.From); ok && slices.Contains(build, "FROM") {
		if update && len(given.Tables) > 0 {
			given.Tables = append([]clause.Table{{Name: clause.CurrentTable}}, given.Tables...)
		}
		to.Clauses["FROM"] = clause.Clause{Name: "FROM", Expression: given}
		several = several || len(given.Tables) > 1 || len(given.Joins) > 0
	}
	if several { // whose columns have the same names
		to.Selects = []string{stmt.Quote(stmt.Table) + ".*"}
	}
}

// severalTables reports whether an expression in the place of a table joins others.
func severalTables(e *clause.Expr) bool {
	if e == nil {
		return false
	}
	l := lexer{sql: e.SQL, dialect: sqlguard.SQLite} // the dialect that knows every kind of quotes
	for {
		t, ok := l.next()
		if !ok {
			return l.odd
		}
		upper := strings.ToUpper(t.text)
		if t.kind == punct && t.text == "," || t.kind == word && (upper == "JOIN" || upper == "STRAIGHT_JOIN") {
			return true
		}
	}
}

// ordersByKey reports whether the order of a statement is that of the whole primary
// key, so that its limit means the same rows whoever asks.
func ordersByKey(stmt *gorm.Statement) bool {
	order, ok := stmt.Clauses["ORDER BY"].Expression.(clause.OrderBy)
	if !ok || order.Expression != nil {
		return false
	}
	found := map[string]bool{}
	for _, c := range order.Columns {
		for _, part := range strings.Split(c.Column.Name, ",") {
			words := strings.Fields(part)
			if len(words) == 1 || len(words) == 2 && (strings.EqualFold(words[1], "asc") || strings.EqualFold(words[1], "desc")) {
				found[keyColumn(stmt, strings.Trim(words[0], "\"`"))] = true
			}
		}
	}
	for _, f := range stmt.Schema.PrimaryFields {
		if !found[f.DBName] {
			return false
		}
	}
	return len(stmt.Schema.PrimaryFields) > 0
}

// keysOf returns the conditions that GORM adds for the primary keys of the
// statement's own models.
func keysOf(stmt *gorm.Statement, update bool) []clause.Expression {
	v := reflect.Indirect(stmt.ReflectValue)
	if !update {
		conds := keysIn(stmt, v)
		if v.CanAddr() && stmt.Dest != stmt.Model && stmt.Model != nil {
			conds = append(conds, keysIn(stmt, reflect.Indirect(reflect.ValueOf(stmt.Model)))...)
		}
		return conds
	}
	if _, given := stmt.Clauses["SET"]; given {
		return nil
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Array { // of several the last decides
		if v.Len() == 0 || len(keysIn(stmt, reflect.Indirect(v.Index(v.Len()-1)))) == 0 {
			return nil
		}
	}
	return keysIn(stmt, v)
}

// keysIn returns a condition that the rows of models meet, if these have keys.
func keysIn(stmt *gorm.Statement, v reflect.Value) []clause.Expression {
	switch v.Kind() {
	case reflect.Struct:
		var keys []clause.Expression
		for _, f := range stmt.Schema.PrimaryFields {
			if value, zero := f.ValueOf(stmt.Context, v); !zero {
				keys = append(keys, clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Value: value})
			}
		}
		return keys
	case reflect.Slice, reflect.Array:
		var rows []clause.Expression
		for i := range v.Len() {
			if keys := keysIn(stmt, reflect.Indirect(v.Index(i))); len(keys) > 0 {
				rows = append(rows, clause.And(keys...))
			}
		}
		if len(rows) > 0 {
			return []clause.Expression{clause.And(clause.Or(rows...))}
		}
	}
	return nil
}
