package gormguard

import (
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/internal/sqltext"
)

// stored returns a query of the rows that an update or a delete is about to meet, or
// nil if GORM will refuse it for want of a WHERE. Where it cannot be sure which they
// are, it finds more.
func (p *Plugin) stored(db *gorm.DB, update bool) *gorm.DB {
	stmt := db.Statement
	q := p.reading(db, true)
	to := q.Statement
	c, conditions := stmt.Clauses["WHERE"]
	restrictable := true
	if conditions {
		where, ok := c.Expression.(clause.Where)
		restrictable = ok && untouched(c)
		if ok { // building it may change their order
			c.Expression = clause.Where{Exprs: slices.Clone(where.Exprs)}
		}
		to.Clauses["WHERE"] = c
	}
	own := stmt.Schema.DeleteClauses
	if update {
		own = stmt.Schema.UpdateClauses
	}
	soft, others := softDelete(own)
	if update { // it brackets what has an OR, before the keys
		alive(stmt, to, soft)
	}
	if keys := keysOf(stmt, update); len(keys) > 0 {
		to.AddClause(clause.Where{Exprs: keys})
	} else if !conditions {
		restrictable = false // there may be no WHERE
		if !others && !db.AllowGlobalUpdate {
			return nil
		}
	}
	build := stmt.BuildClauses
	if !update {
		alive(stmt, to, soft)
		if !stmt.Unscoped && len(own) > 0 {
			build, update = db.Callback().Update().Clauses, true
		}
	}
	from(stmt, to, build, update)
	_, limit := stmt.Clauses["LIMIT"]
	if limit && restrictable && !others && slices.Contains(build, "LIMIT") && len(stmt.Schema.PrimaryFields) > 0 {
		to.Clauses["LIMIT"] = stmt.Clauses["LIMIT"]
		if order, ok := stmt.Clauses["ORDER BY"]; ok {
			to.Clauses["ORDER BY"] = order
		}
		stmt.Settings.Store(limitedKey{}, &limited{stmt: stmt})
	}
	return q
}

// softDelete looks for GORM's own among the clauses that the types of a model add, and
// tells whether there are others, which may add conditions.
func softDelete(own []clause.Interface) (soft *gorm.SoftDeleteQueryClause, others bool) {
	for _, c := range own {
		switch c := c.(type) {
		case gorm.SoftDeleteUpdateClause:
			soft = (*gorm.SoftDeleteQueryClause)(&c)
		case gorm.SoftDeleteDeleteClause:
			soft = (*gorm.SoftDeleteQueryClause)(&c)
		default:
			others = true
		}
	}
	return soft, others
}

// alive leaves out of a query the rows that a statement leaves out as deleted.
func alive(stmt, to *gorm.Statement, soft *gorm.SoftDeleteQueryClause) {
	if soft != nil && !stmt.Unscoped {
		soft.ModifyStatement(to)
	}
}

// reachesOthers returns the modifier of an update that may change other rows than its
// conditions find, as OR REPLACE does.
func reachesOthers(stmt *gorm.Statement) string {
	update, _ := stmt.Clauses["UPDATE"].Expression.(clause.Update)
	for _, word := range strings.Fields(strings.ToUpper(update.Modifier)) {
		if !slices.Contains([]string{"OR", "IGNORE", "ABORT", "FAIL", "ROLLBACK", "LOW_PRIORITY", "ONLY"}, word) {
			return update.Modifier
		}
	}
	return ""
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
		to.AddClause(clause.Select{Columns: []clause.Column{{Name: stmt.Quote(stmt.Table) + ".*", Raw: true}}})
	}
}

// severalTables reports whether an expression in the place of a table joins others.
func severalTables(e *clause.Expr) bool {
	if e == nil {
		return false
	}
	l := rawsql.Lexer{SQL: e.SQL, Dialect: sqltext.SQLite} // the dialect that knows every kind of quotes
	for {
		t, ok := l.Next()
		if !ok {
			return l.Odd
		}
		if t.Kind == rawsql.Punct && t.Text == "," || t.Is("JOIN", "STRAIGHT_JOIN") {
			return true
		}
	}
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
	switch v.Kind() {
	case reflect.Struct: // an update leaves out what is zero of a key
		var keys []clause.Expression
		for _, f := range stmt.Schema.PrimaryFields {
			if value, zero := f.ValueOf(stmt.Context, v); !zero {
				keys = append(keys, clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Value: value})
			}
		}
		return keys
	case reflect.Slice, reflect.Array: // of several the last decides
		if v.Len() > 0 && len(keysIn(stmt, reflect.Indirect(v.Index(v.Len()-1)))) > 0 {
			return keysIn(stmt, v)
		}
	}
	return nil
}

// keysIn returns the condition that GORM makes of the primary keys of models: of all
// columns, as soon as one is not zero.
func keysIn(stmt *gorm.Statement, v reflect.Value) []clause.Expression {
	if !v.IsValid() {
		return nil
	}
	t := v.Type()
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		if t = t.Elem(); t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	if _, keys := schema.GetIdentityFieldValuesMap(stmt.Context, v, stmt.Schema.PrimaryFields); len(keys) > 0 {
		return []clause.Expression{in(stmt.Schema.PrimaryFields, keys)}
	}
	return nil
}

// in is the condition that a row has one of the values in these columns. It does not
// nest, as OR does: SQLite takes no more than 1000 of these.
func in(fields []*schema.Field, values [][]any) clause.IN {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.DBName
	}
	column, list := schema.ToQueryValues(clause.CurrentTable, names, values)
	return clause.IN{Column: column, Values: list}
}
