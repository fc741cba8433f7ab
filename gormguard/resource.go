package gormguard

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/callbacks"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

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

// told returns the resource of a model that may be no row, such as Item{ID: 1}, and
// have none.
func told(f Fenced) (resource string) {
	defer func() {
		if recover() != nil {
			resource = ""
		}
	}()
	return f.FenceResource()
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

// needsResource reports whether the rows of the statement name their fences. A model
// on another table, one that is not guarded, asks for none.
func (p *Plugin) needsResource(db *gorm.DB) bool {
	stmt := db.Statement
	return db.Error == nil && !db.DryRun && stmt.Schema != nil && p.model(stmt.Schema).fenced &&
		stmt.Context.Value(unguardedKey{}) == nil && p.target(stmt) != ""
}

// asking wraps a callback that calls FenceResource. If that panics, GORM leaves its
// transaction open, and with it the fences that it has entered.
func asking(check func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		returned := false
		defer func() {
			if !returned {
				_ = db.AddError(errors.New("gormguard: FenceResource has panicked"))
				callbacks.CommitOrRollbackTransaction(db)
			}
		}()
		check(db)
		returned = true
	}
}

// checkInsertedResources refuses new rows whose fence the context does not carry,
// and an upsert that may take a stored row from another resource.
func (p *Plugin) checkInsertedResources(db *gorm.DB) {
	if !p.needsResource(db) {
		return
	}
	stmt := db.Statement
	rows, unknown := inserted(stmt)
	for i, set := range unknown {
		if err := p.refuseUnknown(stmt, rows.Index(i), set); err != nil {
			_ = db.AddError(err)
			return
		}
	}
	if resource, _ := foreign(stmt, rows); resource != "" {
		_ = db.AddError(p.foreignFence(stmt.Context, stmt.Table, resource))
		return
	}
	p.checkUpsert(db, rows)
}

// checkDeletedResources refuses a delete of rows whose fence the context does not
// carry.
func (p *Plugin) checkDeletedResources(db *gorm.DB) {
	if p.needsResource(db) && db.Statement.SQL.Len() == 0 && !p.believed(db.Statement, nil) {
		p.ask(db, p.stored(db, false), nil)
	}
}

// checkUpdatedResources asks the rows before the update and as it leaves them.
func (p *Plugin) checkUpdatedResources(db *gorm.DB) {
	if !p.needsResource(db) || db.Statement.SQL.Len() > 0 {
		return
	}
	if modifier := reachesOthers(db.Statement); modifier != "" {
		_ = db.AddError(p.refuse(db.Statement.Context, raw(db.Statement.Table, "UPDATE "+modifier+" may change rows that it does not name")))
		return
	}
	set := assignments(db.Statement)
	if db.Error == nil && !p.believed(db.Statement, set) {
		p.ask(db, p.stored(db, true), func(row reflect.Value) ([]reflect.Value, error) {
			return p.becomes(db.Statement, row, set, row)
		})
	}
}

// ask reads the rows that q finds, one by one, and refuses the statement at the
// first whose fence the context does not carry, as it is or as the statement leaves
// it.
func (p *Plugin) ask(db, q *gorm.DB, becomes func(row reflect.Value) ([]reflect.Value, error)) {
	if q == nil {
		return
	}
	answered := false
	defer func() {
		if !answered { // FenceResource has panicked
			endOwn(db, false)
		}
	}()
	err := p.within(db, q)
	if err == nil {
		err = p.askEach(db, q, becomes)
	}
	answered = true
	_ = db.AddError(err)
}

func (p *Plugin) askEach(db, q *gorm.DB, becomes func(row reflect.Value) ([]reflect.Value, error)) (err error) {
	stmt := db.Statement
	build(q)
	rows, err := q.Rows()
	if err != nil {
		return err
	}
	defer func() {
		if closed := rows.Close(); closed != nil { // it may have cost the transaction
			err = closed
		}
	}()
	scan := db.Session(&gorm.Session{NewDB: true, SkipHooks: true})
	for rows.Next() {
		row := reflect.New(stmt.Schema.ModelType)
		if err := scan.ScanRows(rows, row.Interface()); err != nil {
			return err
		}
		if l := limitedOf(stmt); l != nil {
			l.asked = append(l.asked, valuesOf(stmt, row.Elem(), stmt.Schema.PrimaryFields))
		}
		if resource, _ := foreign(stmt, row); resource != "" {
			return p.foreignFence(stmt.Context, stmt.Table, resource)
		}
		var states []reflect.Value
		if becomes != nil {
			if states, err = becomes(row.Elem()); err != nil {
				return err
			}
		}
		for _, state := range states {
			if resource, _ := foreign(stmt, state); resource != "" {
				return p.foreignFence(stmt.Context, stmt.Table, resource)
			}
		}
		if !p.oneFence(stmt, append(states, row)) {
			return p.refuse(stmt.Context, severalFences(stmt.Context, stmt.Table))
		}
	}
	return rows.Err()
}

// inserted returns the new rows of a statement as the database will have them: maps
// as models, and what is left out with its default. Of maps there may be values that
// only the database knows.
func inserted(stmt *gorm.Statement) (rows reflect.Value, unknown []clause.Set) {
	var left, defaults []*schema.Field
	columns, restricted := stmt.SelectAndOmitColumns(true, false)
	for _, f := range stmt.Schema.Fields {
		if chosen, named := columns[f.DBName]; f.DBName != "" && (named && !chosen || !named && restricted) {
			left = append(left, f)
		}
		if f.DefaultValueInterface != nil {
			defaults = append(defaults, f)
		}
	}
	complete := func(row reflect.Value) {
		for _, f := range left {
			place(row, f).SetZero()
		}
		for _, f := range defaults {
			if _, zero := f.ValueOf(stmt.Context, row); zero {
				assign(stmt.Context, f, row, f.DefaultValueInterface)
			}
		}
	}
	rows = reflect.MakeSlice(reflect.SliceOf(stmt.Schema.ModelType), 0, 1)
	switch stmt.Dest.(type) {
	case map[string]any, *map[string]any, []map[string]any, *[]map[string]any:
		given := callbacks.ConvertToCreateValues(aside(stmt))
		for _, values := range given.Values {
			row, set := reflect.New(stmt.Schema.ModelType).Elem(), clause.Set{}
			complete(row)
			for i, value := range values {
				set = append(set, clause.Assignment{Column: given.Columns[i], Value: value})
			}
			row, open := assigned(stmt, row, set, row)
			rows, unknown = reflect.Append(rows, row), append(unknown, open)
		}
	default:
		if len(left)+len(defaults) == 0 {
			return stmt.ReflectValue, nil
		}
		elements(stmt.ReflectValue, func(f Fenced) {
			rows = reflect.Append(rows, reflect.ValueOf(f).Elem())
			complete(rows.Index(rows.Len() - 1))
		})
	}
	return rows, unknown
}
