package gormguard

import (
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/sqlguard"
)

// takeBuilders stands in front of the clauses that a comparison is built into. It
// is done as the SQL is written: an assignment or a condition that is added
// earlier shows in Changed(), in the caller's maps and structs, and hides that a
// statement has no WHERE; and Select, Omit and soft delete drop it again.
func (p *Plugin) takeBuilders(db *gorm.DB) {
	for name, build := range map[string]func(*rowPlan, clause.Clause, *gorm.Statement) (clause.Clause, bool){
		"SET": p.buildSet, "WHERE": p.buildWhere, "VALUES": p.buildValues, "ON CONFLICT": p.buildConflict,
	} {
		next := db.ClauseBuilders[name]
		db.ClauseBuilders[name] = func(c clause.Clause, builder clause.Builder) {
			if stmt, ok := builder.(*gorm.Statement); ok {
				if r := planOf(stmt); r != nil {
					var done bool
					if c, done = build(r, c, stmt); done {
						return
					}
				}
			}
			if next != nil {
				next(c, builder)
				return
			}
			c.Build(builder)
		}
	}
}

// staleMark is in the text of the error that a server raises for a stale row,
// followed by the row's token.
const staleMark = "fencing stale "

// compared returns an expression that is then, if the row may be written under the
// token, and an error of the server otherwise. So a statement writes all of its
// rows or none, in one round trip, and a row that is missing is told from one that
// is newer. The error must not be a constant: a planner would raise it for
// nothing.
func (p *Plugin) compared(column clause.Column, token, then any) clause.Expr {
	sql := "CASE WHEN ? <= ? THEN ? ELSE "
	switch p.dialect {
	case sqlguard.Postgres:
		sql += "('" + staleMark + "' || ?)::bigint"
	case sqlguard.MySQL: // no error of its functions quotes a value that is not constant
		return clause.Expr{SQL: sql + "(SELECT 1 UNION ALL SELECT 2) END", Vars: []any{column, token, then}, WithoutParentheses: true}
	default:
		sql += "json_extract('{}', '" + staleMark + "' || ?)"
	}
	return clause.Expr{SQL: sql + " END", Vars: []any{column, token, then, column}, WithoutParentheses: true}
}

// own reports whether a column is the version column, which only the guard writes.
func (r *rowPlan) own(c clause.Column) bool { return strings.EqualFold(c.Name, r.column) }

func (r *rowPlan) others(set clause.Set) clause.Set {
	return slices.DeleteFunc(slices.Clone(set), func(a clause.Assignment) bool { return r.own(a.Column) })
}

func (p *Plugin) buildSet(r *rowPlan, c clause.Clause, stmt *gorm.Statement) (clause.Clause, bool) {
	set, ok := c.Expression.(clause.Set)
	if !ok {
		_ = stmt.AddError(raw(r.table, "its SET is not GORM's"))
		return c, true
	}
	_, _ = stmt.WriteString("SET ")
	start := stmt.SQL.Len()
	if others := r.others(set); len(others) > 0 {
		others.Build(stmt)
		_ = stmt.WriteByte(',')
	}
	p.wholesome(r, stmt, start, true)
	column := clause.Column{Name: r.column}
	stmt.WriteQuoted(column)
	_ = stmt.WriteByte('=')
	p.compared(column, int64(r.fence.Token), int64(r.fence.Token)).Build(stmt)
	r.applied = true
	return c, true
}

// buildWhere puts the comparison into a DELETE, which has no other place for it.
// The comparison repeats the conditions: a server may evaluate the parts of an AND
// in any order, and must not find a row stale that the statement does not mean.
func (p *Plugin) buildWhere(r *rowPlan, c clause.Clause, stmt *gorm.Statement) (clause.Clause, bool) {
	if r.applied || r.insert || !strings.HasPrefix(stmt.SQL.String(), "DELETE") {
		return c, false
	}
	where, ok := c.Expression.(clause.Where)
	if !ok {
		_ = stmt.AddError(raw(r.table, "its WHERE is not GORM's"))
		return c, true
	}
	write := func() {
		_ = stmt.WriteByte('(')
		start := stmt.SQL.Len()
		clause.Where{Exprs: slices.Clone(where.Exprs)}.Build(stmt)
		p.wholesome(r, stmt, start, false)
		_ = stmt.WriteByte(')')
	}
	_, _ = stmt.WriteString("WHERE ")
	write()
	_, _ = stmt.WriteString(" AND CASE WHEN ")
	write()
	_, _ = stmt.WriteString(" THEN ")
	p.compared(clause.Column{Name: r.column}, int64(r.fence.Token), clause.Expr{SQL: "1"}).Build(stmt)
	_, _ = stmt.WriteString(" ELSE 0 END = 1")
	r.applied = true
	return c, true
}

func (p *Plugin) buildValues(r *rowPlan, c clause.Clause, _ *gorm.Statement) (clause.Clause, bool) {
	values, ok := c.Expression.(clause.Values)
	if !ok || !r.insert {
		return c, false
	}
	columns := slices.Clone(values.Columns)
	i := slices.IndexFunc(columns, r.own)
	if i < 0 {
		i = len(columns)
		columns = append(columns, clause.Column{Name: r.column})
	}
	rows := make([][]any, max(len(values.Values), 1)) // a row of defaults has no values
	for n := range rows {
		var row []any
		if n < len(values.Values) {
			row = slices.Clone(values.Values[n])
		}
		fence := r.fence
		if len(r.rows) == len(rows) {
			fence = r.rows[n]
		}
		if i < len(row) {
			row[i] = int64(fence.Token)
		} else {
			row = append(row, int64(fence.Token))
		}
		rows[n] = row
	}
	c.Expression = clause.Values{Columns: columns, Values: rows}
	r.applied = true
	return c, false
}

func (p *Plugin) buildConflict(r *rowPlan, c clause.Clause, stmt *gorm.Statement) (clause.Clause, bool) {
	conflict, ok := c.Expression.(clause.OnConflict)
	if !ok || !r.insert {
		return c, false
	}
	r.conflict = true
	if conflict.DoNothing || p.dialect == sqlguard.MySQL && len(conflict.DoUpdates) == 0 {
		return c, false // what is there stays
	}
	if p.dialect == sqlguard.MySQL && len(conflict.Where.Exprs) > 0 {
		_ = stmt.AddError(raw(r.table, "MySQL has no WHERE in an upsert, and its driver for GORM drops it"))
		return c, true
	}
	stored := clause.Column{Table: r.tableRef(), Name: r.column}
	var offered any = clause.Column{Table: "excluded", Name: r.column}
	if p.dialect == sqlguard.MySQL {
		stored.Table = ""
		offered = clause.Expr{SQL: "VALUES(?)", Vars: []any{clause.Column{Name: r.column}}}
	}
	conflict.DoUpdates = append(r.others(conflict.DoUpdates), clause.Assignment{Column: clause.Column{Name: r.column}, Value: p.compared(stored, offered, offered)})
	c.Expression = conflict
	return c, false
}

func (r *rowPlan) tableRef() string {
	if c, ok := r.stmt.Clauses["INSERT"].Expression.(clause.Insert); ok && c.Table.Name != "" {
		return c.Table.Name
	}
	return clause.CurrentTable
}

// wholesome refuses a piece of SQL of the caller that reaches out of its place: a
// bracket that closes one of ours, a comment that swallows the comparison, an
// assignment to the version column.
func (p *Plugin) wholesome(r *rowPlan, stmt *gorm.Statement, start int, set bool) {
	l := p.lexer(stmt.SQL.String()[start:])
	depth, why := 0, ""
	for why == "" {
		t, ok := l.Next()
		if !ok {
			break
		}
		switch {
		case t.Kind == rawsql.Punct && t.Text == "(":
			depth++
		case t.Kind == rawsql.Punct && t.Text == ")":
			if depth--; depth < 0 {
				why = "its brackets are not balanced"
			}
		case t.Kind == rawsql.Punct && t.Text == ";":
			why = "it has a semicolon"
		case set && t.Kind != rawsql.Text && t.Kind != rawsql.Punct && strings.EqualFold(rawsql.Unescaped(t.Text), r.column):
			why = "it uses the version column by itself"
		}
	}
	if why == "" && (depth != 0 || l.Odd || l.Comment) {
		why = "it has brackets, quotes or comments that are not complete"
	}
	if why != "" {
		_ = stmt.AddError(p.refuse(stmt.Context, raw(r.table, why)))
	}
}
