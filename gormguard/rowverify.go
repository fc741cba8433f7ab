package gormguard

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
	"github.com/go-fencing/fencing/sqlguard"
)

func (p *Plugin) verifyCreate(db *gorm.DB) {
	p.askAgain(db)
	db.Statement.Settings.Delete(upsertKey{})
	p.verify(db)
}

// verify comes right after the statement, and before GORM commits.
func (p *Plugin) verify(db *gorm.DB) {
	defer remember(db)
	defer func() { endOwn(db, db.Error == nil) }()
	stmt := db.Statement
	stmt.Settings.Delete(limitedKey{})
	r := planOf(stmt)
	if db.Error != nil {
		p.translate(db, r)
	}
	if r == nil {
		return
	}
	stmt.ConnPool = r.conn
	stmt.Settings.Delete(planKey{})
	if db.Error == nil && !db.DryRun && !r.insert && r.applied && db.RowsAffected == 0 {
		p.missing(db, r)
	}
}

// translate gives the refusal of a server the meaning that it has in package
// guard.
func (p *Plugin) translate(db *gorm.DB, r *rowPlan) {
	held := guard.Fences(db.Statement.Context)
	err := sqlguard.Translate(db.Error, held...)
	if r != nil && r.applied {
		if token, ok := p.staleToken(db, r); ok {
			err = p.stale(r, token, db.Error)
		}
	}
	db.Error = err
	if db.Statement.Result != nil {
		db.Statement.Result.Error = err
	}
}

// A staleRow is what a server says of a row that is newer than the token.
type staleRow struct {
	guard.StaleError
	cause error
}

func (e *staleRow) Unwrap() []error {
	if e.cause == nil {
		return []error{&e.StaleError}
	}
	return []error{&e.StaleError, e.cause}
}

func (p *Plugin) stale(r *rowPlan, token guard.Token, cause error) error {
	held := r.fence
	for _, f := range r.rows { // of several rows, that which is behind
		if f.Token < token {
			held = f
			break
		}
	}
	err := &staleRow{guard.StaleError{Held: held, Current: guard.Fence{Resource: held.Resource, Token: token}}, cause}
	return p.refuse(r.stmt.Context, err)
}

// staleToken returns the token of the newer row, if the error is that of the
// comparison. It is 0 where that is certain and the row cannot be found.
func (p *Plugin) staleToken(db *gorm.DB, r *rowPlan) (guard.Token, bool) {
	if p.dialect == sqlguard.MySQL {
		if sqlerror.MySQLNumber(db.Error) != mysqlSubqueryRows {
			return 0, false
		}
		conds := keysIn(r.stmt, reflect.Indirect(r.stmt.ReflectValue)) // of new rows
		if where, ok := r.stmt.Clauses["WHERE"].Expression.(clause.Where); ok && !r.insert {
			conds = where.Exprs
		}
		token, err := p.newest(db, r, conds)
		// A subquery of the caller can fail like this, too.
		behind := func(f guard.Fence) bool { return f.Token < token }
		return token, err == nil && (!r.insert || r.conflict) && (behind(r.fence) || slices.ContainsFunc(r.rows, behind))
	}
	_, rest, ok := strings.Cut(db.Error.Error(), staleMark)
	if !ok {
		return 0, false
	}
	end := 0
	for end < len(rest) && '0' <= rest[end] && rest[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(rest[:end], 10, 64)
	return guard.Token(n), err == nil
}

const mysqlSubqueryRows = 1242 // ER_SUBQUERY_NO_1_ROW

// newest returns the greatest token of some rows.
func (p *Plugin) newest(db *gorm.DB, r *rowPlan, conds []clause.Expression) (guard.Token, error) {
	stmt := r.stmt
	q := db.Session(&gorm.Session{NewDB: true, SkipHooks: true}).Unscoped()
	q.Error = nil
	q.Statement.Table, q.Statement.TableExpr, q.Statement.Model = stmt.Table, stmt.TableExpr, stmt.Model
	if name := p.redirected(stmt); name != "" {
		q.Statement.Table, q.Statement.TableExpr = name, nil
	}
	q = q.Select("COALESCE(MAX(" + stmt.Quote(clause.Column{Name: r.column}) + "), 0)")
	if len(conds) > 0 {
		q = q.Clauses(clause.Where{Exprs: slices.Clone(conds)})
	}
	if p.dialect == sqlguard.MySQL { // a plain read at REPEATABLE READ would see the row as it was
		q = q.Clauses(clause.Locking{Strength: "SHARE"})
	}
	var token int64
	err := q.Scan(&token).Error
	return guard.Token(token), err
}

// missing tells a row that is not there from one that a newer holder has moved out
// of reach of the conditions, for example by a soft delete. It asks only where the
// statement names rows by their whole primary key.
func (p *Plugin) missing(db *gorm.DB, r *rowPlan) {
	stmt := db.Statement
	keys := pinned(stmt)
	if keys == nil {
		return
	}
	token, err := p.newest(db, r, keys)
	if err != nil {
		_ = db.AddError(fmt.Errorf("gormguard: tell missing rows of %q from newer ones: %w", r.table, err))
		return
	}
	if token > r.fence.Token {
		_ = db.AddError(p.stale(r, token, nil))
	}
}

// pinned returns the conditions on the primary key, if they name certain rows.
func pinned(stmt *gorm.Statement) []clause.Expression {
	where, ok := stmt.Clauses["WHERE"].Expression.(clause.Where)
	if !ok || stmt.Schema == nil || len(stmt.Schema.PrimaryFields) == 0 {
		return nil
	}
	var keys []clause.Expression
	found := map[string]bool{}
	var walk func([]clause.Expression) bool
	walk = func(exprs []clause.Expression) bool {
		for _, e := range exprs {
			switch e := e.(type) {
			case clause.OrConditions:
				return false
			case clause.AndConditions:
				if !walk(e.Exprs) {
					return false
				}
			case clause.Eq:
				if name := keyColumn(stmt, e.Column); name != "" && plain(e.Value) {
					keys = append(keys, e)
					found[name] = true
				}
			case clause.IN:
				if columns, ok := e.Column.([]clause.Column); ok && len(columns) == len(stmt.Schema.PrimaryFields) {
					keys = append(keys, e)
					for _, c := range columns {
						found[keyColumn(stmt, c)] = true
					}
				} else if name := keyColumn(stmt, e.Column); name != "" {
					keys = append(keys, e)
					found[name] = true
				}
			case clause.Expr:
				if name := keyOfText(stmt, e); name != "" {
					keys = append(keys, e)
					found[name] = true
				}
			}
		}
		return true
	}
	if !walk(where.Exprs) {
		return nil
	}
	for _, f := range stmt.Schema.PrimaryFields {
		if !found[f.DBName] {
			return nil
		}
	}
	return keys
}

func plain(v any) bool {
	switch v.(type) {
	case clause.Expression, *gorm.DB:
		return false
	}
	return v != nil && reflect.ValueOf(v).Kind() != reflect.Func
}

// keyColumn returns the column of the primary key that is meant, or "".
func keyColumn(stmt *gorm.Statement, column any) string {
	var name string
	switch c := column.(type) {
	case string:
		name = c
	case clause.Column:
		name = c.Name
		if name == clause.PrimaryKey && stmt.Schema.PrioritizedPrimaryField != nil {
			return stmt.Schema.PrioritizedPrimaryField.DBName
		}
	case []clause.Column:
		if len(c) == 1 {
			return keyColumn(stmt, c[0])
		}
	}
	if _, after, ok := strings.Cut(name, "."); ok {
		name = after
	}
	for _, f := range stmt.Schema.PrimaryFields {
		if strings.EqualFold(f.DBName, name) || f.Name == name {
			return f.DBName
		}
	}
	return ""
}

// keyOfText reads the commonest condition that is written as text: id = ?
func keyOfText(stmt *gorm.Statement, e clause.Expr) string {
	if len(e.Vars) != 1 || !plain(e.Vars[0]) {
		return ""
	}
	name, value, ok := strings.Cut(e.SQL, "=")
	if !ok || strings.TrimSpace(value) != "?" {
		return ""
	}
	return keyColumn(stmt, strings.Trim(strings.TrimSpace(name), "\"`"))
}
