package gormguard

import (
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// checkMoved refuses a write after which one of rows would need a fence that the
// context does not carry: it would appear in the middle of another holder's work.
// What an expression of SQL makes of a row is not known here.
func (p *Plugin) checkMoved(db *gorm.DB, rows reflect.Value, set clause.Set) {
	stmt := db.Statement
	if len(set) == 0 {
		return
	}
	moved := reflect.MakeSlice(reflect.SliceOf(stmt.Schema.ModelType), 0, 1)
	elements(rows, func(f Fenced) {
		row := reflect.New(stmt.Schema.ModelType).Elem()
		given := reflect.ValueOf(f).Elem()
		if given.Type() != row.Type() {
			return
		}
		row.Set(given)
		for _, a := range set {
			if _, sql := a.Value.(clause.Expression); sql {
				continue
			}
			if field := stmt.Schema.LookUpField(a.Column.Name); field != nil && field.Serializer == nil {
				_ = field.Set(stmt.Context, row, a.Value) // what does not fit, the server will refuse
			}
		}
		moved = reflect.Append(moved, row)
	})
	if resource, _ := foreign(stmt, moved); resource != "" {
		_ = db.AddError(p.foreignFence(stmt.Context, stmt.Table, resource))
	}
}

// assignments returns what an update sets, before GORM has made its SET of it.
func assignments(stmt *gorm.Statement) (set clause.Set) {
	if given, ok := stmt.Clauses["SET"].Expression.(clause.Set); ok {
		return given
	}
	chosen := func(string) bool { return true }
	all := false
	if len(stmt.Selects)+len(stmt.Omits) > 0 {
		columns, restricted := stmt.SelectAndOmitColumns(false, true)
		all = restricted
		chosen = func(column string) bool {
			v, ok := columns[column]
			return ok && v || !ok && !restricted
		}
	}
	dest := reflect.ValueOf(stmt.Dest)
	for dest.Kind() == reflect.Pointer {
		dest = dest.Elem()
	}
	switch {
	case !dest.IsValid():
	case dest.Kind() == reflect.Struct:
		source := &gorm.Statement{DB: stmt.DB}
		if source.Parse(stmt.Dest) != nil {
			return nil
		}
		for _, f := range source.Schema.Fields {
			if f.DBName == "" || !chosen(f.DBName) {
				continue
			}
			if value, zero := f.ValueOf(stmt.Context, dest); !zero || all {
				set = append(set, clause.Assignment{Column: clause.Column{Name: f.DBName}, Value: value})
			}
		}
	default:
		values, _ := dest.Interface().(map[string]any)
		for name, value := range values {
			if f := stmt.Schema.LookUpField(name); f != nil && chosen(f.DBName) {
				set = append(set, clause.Assignment{Column: clause.Column{Name: f.DBName}, Value: value})
			}
		}
	}
	return set
}
