package gormguard

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/guard"
)

// elements yields the models of a statement's value as they implement Fenced.
func elements(v reflect.Value, yield func(Fenced)) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			elements(v.Index(i), yield)
		}
	case reflect.Struct:
		if !v.CanAddr() { // Updates and Create take structs by value too
			p := reflect.New(v.Type())
			p.Elem().Set(v)
			v = p.Elem()
		}
		if f, ok := v.Addr().Interface().(Fenced); ok {
			yield(f)
		}
	}
}

// foreign returns the first resource of the models in v whose fence the statement
// does not have, and how many models there are.
func foreign(stmt *gorm.Statement, v reflect.Value) (resource string, count int) {
	elements(v, func(f Fenced) {
		count++
		r := f.FenceResource()
		if _, ok := guard.FromContext(stmt.Context, r); !ok && resource == "" {
			resource = r
			if r == "" {
				resource = "(no name)"
			}
		}
	})
	return resource, count
}

func (p *Plugin) foreignFence(ctx context.Context, table, resource string) error {
	return p.refuse(ctx, fmt.Errorf("gormguard: write to %q: %w of %q in the context, which the row needs; nothing was written", table, guard.ErrNoFence, resource))
}

// needsResource reports whether the rows of the statement name their fences.
func (p *Plugin) needsResource(db *gorm.DB) bool {
	stmt := db.Statement
	return db.Error == nil && !db.DryRun && stmt.Schema != nil && p.model(stmt.Schema).fenced && stmt.Context.Value(unguardedKey{}) == nil
}

// checkInsertedResources refuses new rows whose fence the context does not carry.
func (p *Plugin) checkInsertedResources(db *gorm.DB) {
	if !p.needsResource(db) {
		return
	}
	rows := inserted(db.Statement)
	if resource, _ := foreign(db.Statement, rows); resource != "" {
		_ = db.AddError(p.foreignFence(db.Statement.Context, db.Statement.Table, resource))
		return
	}
	if c, ok := db.Statement.Clauses["ON CONFLICT"].Expression.(clause.OnConflict); ok {
		p.checkMoved(db, rows, c.DoUpdates)
	}
}

// inserted returns the new rows of a statement as models, also where they are
// given as maps.
func inserted(stmt *gorm.Statement) reflect.Value {
	var maps []map[string]any
	switch dest := stmt.Dest.(type) {
	case map[string]any:
		maps = append(maps, dest)
	case *map[string]any:
		maps = append(maps, *dest)
	case []map[string]any:
		maps = dest
	case *[]map[string]any:
		maps = *dest
	default:
		return stmt.ReflectValue
	}
	rows := reflect.MakeSlice(reflect.SliceOf(stmt.Schema.ModelType), len(maps), len(maps))
	for i, m := range maps {
		for name, value := range m {
			if f := stmt.Schema.LookUpField(name); f != nil {
				_ = f.Set(stmt.Context, rows.Index(i), value) // a value that does not fit names no resource
			}
		}
	}
	return rows
}

// checkStoredResources refuses an update or a delete of rows whose fence the
// context does not carry. What the statement's own models say is enough if they
// name fences that are there; otherwise, as with Model(&Item{}).Where(...) and
// Item{ID: 1}, the stored rows are read and asked. It returns the rows.
func (p *Plugin) checkStoredResources(db *gorm.DB) (rows reflect.Value) {
	stmt := db.Statement
	if resource, count := foreign(stmt, stmt.ReflectValue); resource == "" && count > 0 && identified(stmt) {
		return stmt.ReflectValue
	}
	rows, err := stored(db)
	if err != nil {
		_ = db.AddError(err)
		return rows
	}
	if resource, _ := foreign(stmt, rows); resource != "" {
		_ = db.AddError(p.foreignFence(stmt.Context, stmt.Table, resource))
	}
	return rows
}

func (p *Plugin) checkDeletedResources(db *gorm.DB) {
	if p.needsResource(db) && db.Statement.SQL.Len() == 0 {
		p.checkStoredResources(db)
	}
}

// checkUpdatedResources asks the rows before the update and as it leaves them.
func (p *Plugin) checkUpdatedResources(db *gorm.DB) {
	if !p.needsResource(db) || db.Statement.SQL.Len() > 0 {
		return
	}
	rows := p.checkStoredResources(db)
	if v := reflect.Indirect(reflect.ValueOf(db.Statement.Dest)); v.CanAddr() && rows.CanAddr() && v.UnsafeAddr() == rows.UnsafeAddr() {
		return // the models have the new values, and were asked
	}
	if db.Error == nil {
		p.checkMoved(db, rows, assignments(db.Statement))
	}
}

// identified reports whether every model of the statement has its primary key, so
// that it stands for a row that the caller has in hands.
func identified(stmt *gorm.Statement) bool {
	has := func(v reflect.Value) bool {
		v = reflect.Indirect(v)
		if v.Kind() != reflect.Struct || v.Type() != stmt.Schema.ModelType {
			return false
		}
		for _, f := range stmt.Schema.PrimaryFields {
			if _, zero := f.ValueOf(stmt.Context, v); zero {
				return false
			}
		}
		return len(stmt.Schema.PrimaryFields) > 0
	}
	v := reflect.Indirect(stmt.ReflectValue)
	if v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return has(v)
	}
	for i := range v.Len() {
		if !has(v.Index(i)) {
			return false
		}
	}
	return v.Len() > 0
}

// stored reads the rows that an update or a delete is about to meet.
func stored(db *gorm.DB) (reflect.Value, error) {
	stmt := db.Statement
	rows := reflect.New(reflect.SliceOf(stmt.Schema.ModelType))
	where, _ := stmt.Clauses["WHERE"].Expression.(clause.Where)
	q := db.Session(&gorm.Session{NewDB: true, SkipHooks: true}).Model(rows.Interface())
	q.Statement.Table, q.Statement.TableExpr, q.Statement.Unscoped = stmt.Table, stmt.TableExpr, stmt.Unscoped
	conds := append([]clause.Expression{}, where.Exprs...)
	conds = append(conds, keysOf(stmt)...)
	if len(conds) == 0 && !db.AllowGlobalUpdate {
		return rows.Elem(), nil // GORM refuses it for want of a WHERE
	}
	if len(conds) > 0 {
		q = q.Clauses(clause.Where{Exprs: conds})
	}
	err := q.Find(rows.Interface()).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		err = nil
	}
	return rows.Elem(), err
}

// keysOf returns the conditions that GORM adds for the primary keys of the
// statement's own models.
func keysOf(stmt *gorm.Statement) []clause.Expression {
	v := reflect.Indirect(stmt.ReflectValue)
	var conds []clause.Expression
	one := func(v reflect.Value) clause.Expression {
		var keys []clause.Expression
		if v = reflect.Indirect(v); v.Kind() != reflect.Struct || v.Type() != stmt.Schema.ModelType {
			return nil
		}
		for _, f := range stmt.Schema.PrimaryFields {
			if value, zero := f.ValueOf(stmt.Context, v); !zero {
				keys = append(keys, clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Value: value})
			}
		}
		return clause.And(keys...)
	}
	switch v.Kind() {
	case reflect.Struct:
		if c := one(v); c != nil {
			conds = append(conds, c)
		}
	case reflect.Slice, reflect.Array:
		var any []clause.Expression
		for i := range v.Len() {
			if c := one(v.Index(i)); c != nil {
				any = append(any, clause.And(c))
			}
		}
		if len(any) > 0 {
			conds = append(conds, clause.And(clause.Or(any...)))
		}
	}
	return conds
}
