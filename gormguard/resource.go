package gormguard

import (
	"context"
	"fmt"
	"reflect"

	"gorm.io/gorm"

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

// needsResource reports whether the rows of the statement name their fences. A model
// on another table, one that is not guarded, asks for none.
func (p *Plugin) needsResource(db *gorm.DB) bool {
	stmt := db.Statement
	return db.Error == nil && !db.DryRun && stmt.Schema != nil && p.model(stmt.Schema).fenced &&
		stmt.Context.Value(unguardedKey{}) == nil && p.target(stmt) != ""
}

// checkInsertedResources refuses new rows whose fence the context does not carry,
// and an upsert that may take a stored row from another resource.
func (p *Plugin) checkInsertedResources(db *gorm.DB) {
	if !p.needsResource(db) {
		return
	}
	if rows := inserted(db.Statement); p.askModels(db, rows) {
		p.checkUpsert(db, rows)
	}
}

// checkReferences asks new rows again when GORM has given them the keys of the models
// to which they belong.
func (p *Plugin) checkReferences(db *gorm.DB) {
	if p.needsResource(db) && len(db.Statement.Schema.Relationships.BelongsTo) > 0 {
		p.askModels(db, inserted(db.Statement))
	}
}

// askModels refuses the statement if the context lacks the fence of a model in v.
func (p *Plugin) askModels(db *gorm.DB, v reflect.Value) bool {
	resource, _ := foreign(db.Statement, v)
	if resource != "" {
		_ = db.AddError(p.foreignFence(db.Statement.Context, db.Statement.Table, resource))
	}
	return resource == ""
}

// checkDeletedResources refuses a delete of rows whose fence the context does not
// carry.
func (p *Plugin) checkDeletedResources(db *gorm.DB) {
	if p.needsResource(db) && db.Statement.SQL.Len() == 0 && !p.believed(db.Statement, nil) {
		p.ask(db, stored(db, false), nil)
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
	if !p.believed(db.Statement, set) {
		p.ask(db, stored(db, true), func(row reflect.Value) []reflect.Value {
			return []reflect.Value{assigned(db.Statement, row, set, row)}
		})
	}
}

// ask reads the rows that q finds, one by one, and refuses the statement at the
// first whose fence the context does not carry, as it is or as the statement leaves
// it.
func (p *Plugin) ask(db, q *gorm.DB, becomes func(row reflect.Value) []reflect.Value) {
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

func (p *Plugin) askEach(db, q *gorm.DB, becomes func(row reflect.Value) []reflect.Value) (err error) {
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
		states := []reflect.Value{row.Elem()}
		if becomes != nil {
			states = append(states, becomes(row.Elem())...)
		}
		for _, state := range states {
			if resource, _ := foreign(stmt, state); resource != "" {
				return p.foreignFence(stmt.Context, stmt.Table, resource)
			}
		}
		if !p.oneFence(stmt, states) {
			return p.refuse(stmt.Context, severalFences(stmt.Context, stmt.Table))
		}
	}
	return rows.Err()
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
