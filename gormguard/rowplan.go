package gormguard

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

type planKey struct{}

// A rowPlan is how one statement is compared and stamped. It belongs to the
// statement that it points to: GORM copies settings into nested ones.
type rowPlan struct {
	stmt     *gorm.Statement
	table    string
	column   string
	fence    guard.Fence   // of the rows
	rows     []guard.Fence // of each new row, where they differ
	conn     gorm.ConnPool // what the statement ran on before
	applied  bool          // the clauses were built with the comparison
	conflict bool          // those of ON CONFLICT were
	insert   bool
}

func planOf(stmt *gorm.Statement) *rowPlan {
	if v, ok := stmt.Settings.Load(planKey{}); ok {
		if p := v.(*rowPlan); p.stmt == stmt {
			return p
		}
	}
	return nil
}

// complete reports why a statement must not run: it is not GORM's, or another
// plugin has built its clauses.
func (r *rowPlan) complete(v rawsql.Verdict) error {
	switch {
	case r == nil:
		return raw(v.Table, "it is raw SQL, or a statement on another table that may write this one too, and its rows cannot be compared and stamped")
	case v.Odd:
		return raw(v.Table, "it has a comment, a second statement, or quotes that cannot be read for certain")
	case !r.applied || r.insert && !r.conflict && r.upserts():
		return raw(v.Table, "its clauses were built by something else")
	}
	return nil
}

func (r *rowPlan) upserts() bool {
	_, ok := r.stmt.Clauses["ON CONFLICT"]
	return ok
}

func (p *Plugin) planCreate(db *gorm.DB) { p.plan(db, true) }

func (p *Plugin) planUpdate(db *gorm.DB) { p.plan(db, false) }

func (p *Plugin) planDelete(db *gorm.DB) {
	p.plan(db, false)
	if db.Error == nil && db.AllowGlobalUpdate && planOf(db.Statement) != nil {
		if _, ok := db.Statement.Clauses["WHERE"]; !ok { // its builder is not called without one
			db.Statement.AddClause(clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: "1 = 1"}}})
		}
	}
}

// plan prepares a statement for ModeRow.
func (p *Plugin) plan(db *gorm.DB, insert bool) {
	stmt := db.Statement
	if !p.mode.stamps() || db.Error != nil || stmt.Context.Value(unguardedKey{}) != nil {
		return
	}
	table := p.target(stmt)
	if table == "" || db.DryRun && len(guard.Fences(stmt.Context)) == 0 {
		return
	}
	r := &rowPlan{stmt: stmt, table: table, column: p.columnOf(stmt, table), conn: stmt.ConnPool, insert: insert}
	err := p.buildable(db, r)
	if err == nil {
		err = p.chooseFence(r)
	}
	if err != nil {
		_ = db.AddError(p.refuse(stmt.Context, err))
		return
	}
	stmt.Settings.Store(planKey{}, r)
	switch c := stmt.ConnPool.(type) {
	case *pool:
		view := *c
		view.plan = r
		stmt.ConnPool = &view
	case *transaction:
		view := *c
		view.plan = r
		stmt.ConnPool = &view
	}
}

func (p *Plugin) columnOf(stmt *gorm.Statement, table string) string {
	if stmt.Schema != nil {
		if m := p.model(stmt.Schema); m.guarded && m.column != nil {
			return m.column.DBName
		}
	}
	if column, ok := p.tables.Column(table); ok {
		return column
	}
	return p.column
}

// buildable refuses what a comparison cannot be built into.
func (p *Plugin) buildable(db *gorm.DB, r *rowPlan) error {
	stmt := r.stmt
	if stmt.SQL.Len() > 0 {
		return raw(r.table, "it is raw SQL, whose rows cannot be compared and stamped")
	}
	chains := db.Callback()
	for _, name := range []string{"INSERT", "VALUES", "ON CONFLICT", "UPDATE", "SET", "DELETE", "FROM", "WHERE"} {
		c, ok := stmt.Clauses[name]
		if ok && !untouched(c) {
			return raw(r.table, "its clause "+name+" has an expression or a builder of its own")
		}
	}
	for _, name := range []string{"ORDER BY", "LIMIT"} {
		if _, ok := stmt.Clauses[name]; ok && slices.Contains(stmt.BuildClauses, name) {
			return raw(r.table, name+" would slide to other rows")
		}
	}
	known := slices.ContainsFunc([][]string{chains.Create().Clauses, chains.Update().Clauses, chains.Delete().Clauses}, func(c []string) bool { return slices.Equal(c, stmt.BuildClauses) })
	if !known {
		return raw(r.table, "its list of clauses was changed")
	}
	if c, ok := stmt.Clauses["INSERT"].Expression.(clause.Insert); ok && c.Modifier != "" {
		return raw(r.table, "INSERT "+c.Modifier+" may delete or skip the row that it meets")
	}
	if c, ok := stmt.Clauses["UPDATE"].Expression.(clause.Update); ok && c.Modifier != "" {
		return raw(r.table, "UPDATE "+c.Modifier+" may delete or skip the row that it meets")
	}
	if c, ok := stmt.Clauses["DELETE"].Expression.(clause.Delete); ok && c.Modifier != "" {
		return raw(r.table, "DELETE "+c.Modifier+" may skip the row that it meets")
	}
	from, _ := stmt.Clauses["FROM"].Expression.(clause.From)
	several := severalTables(stmt.TableExpr) || len(from.Joins) > 0 || len(from.Tables) > 1
	for _, t := range p.redirections(stmt) {
		several = several || t.Raw && severalTables(&clause.Expr{SQL: t.Name})
	}
	if several {
		return raw(r.table, "it joins other tables")
	}
	return nil
}

// redirections returns the tables that clauses name in place of the model's.
func (p *Plugin) redirections(stmt *gorm.Statement) (tables []clause.Table) {
	if c, ok := stmt.Clauses["INSERT"].Expression.(clause.Insert); ok {
		tables = append(tables, c.Table)
	}
	if c, ok := stmt.Clauses["UPDATE"].Expression.(clause.Update); ok {
		tables = append(tables, c.Table)
	}
	update := slices.Contains(stmt.BuildClauses, "UPDATE") && p.dialect != sqlguard.MySQL // which only reads its FROM
	if c, ok := stmt.Clauses["FROM"].Expression.(clause.From); ok && !update {
		tables = append(tables, c.Tables...)
	}
	return tables
}

// redirected returns a guarded table that a clause names in place of the model's.
func (p *Plugin) redirected(stmt *gorm.Statement) string {
	for _, t := range p.redirections(stmt) {
		if name := p.mentioned(t.Name); name != "" {
			return name
		}
	}
	return ""
}

// chooseFence finds the token that the rows are compared with and stamped with:
// that of the resource which they name, or else the only one of the context.
func (p *Plugin) chooseFence(r *rowPlan) error {
	stmt := r.stmt
	held := guard.Fences(stmt.Context)
	if len(held) == 0 {
		return noFence(r.table)
	}
	if stmt.Schema != nil && p.model(stmt.Schema).fenced {
		elements(rowsOf(stmt, r.insert), func(f Fenced) {
			if f, ok := guard.FromContext(stmt.Context, told(f)); ok {
				r.rows = append(r.rows, f)
			}
		})
		if len(r.rows) > 0 {
			r.fence = r.rows[0]
			same := !slices.ContainsFunc(r.rows, func(f guard.Fence) bool { return f != r.fence })
			if r.insert || same {
				return nil
			}
		}
	}
	if len(held) > 1 {
		return severalFences(stmt.Context, r.table)
	}
	r.fence = held[0]
	return nil
}

// oneFence reports whether the states of a stored row, as it is and as the statement
// leaves it, answer to the fence that it is compared with and stamped with.
func (p *Plugin) oneFence(stmt *gorm.Statement, states []reflect.Value) bool {
	if !p.mode.stamps() || len(guard.Fences(stmt.Context)) < 2 {
		return true
	}
	if !slices.Contains(stmt.BuildClauses, "INSERT") {
		states = append(slices.Clip(states), stmt.ReflectValue)
	}
	needed := map[guard.Fence]bool{}
	for _, state := range states {
		elements(state, func(f Fenced) {
			if f, ok := guard.FromContext(stmt.Context, told(f)); ok {
				needed[f] = true
			}
		})
	}
	return len(needed) < 2
}

func severalFences(ctx context.Context, table string) error {
	return fmt.Errorf("gormguard: write to %q: %w of one resource: the context carries %d, and the rows do not say which, or name several; give the model a method FenceResource, or one statement for each; nothing was written", table, guard.ErrNoFence, len(guard.Fences(ctx)))
}

func rowsOf(stmt *gorm.Statement, insert bool) reflect.Value {
	if insert {
		rows, _ := inserted(stmt)
		return rows
	}
	return stmt.ReflectValue
}
