package gormguard

import (
	"reflect"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// assigned returns a copy of row as the assignments leave it. Columns that an upsert
// sets to those of the new row (excluded.x) are taken from offered. What an expression
// of SQL makes of a column is not known here.
func assigned(stmt *gorm.Statement, row reflect.Value, set clause.Set, offered reflect.Value) reflect.Value {
	changed := reflect.New(stmt.Schema.ModelType).Elem()
	changed.Set(row)
	for _, a := range set {
		field := fieldOf(stmt.Schema, a.Column.Name)
		if field == nil || field.Serializer != nil {
			continue
		}
		value := a.Value
		switch v := value.(type) {
		case clause.Expression, *gorm.DB:
			continue
		case clause.Column:
			other := fieldOf(stmt.Schema, v.Name)
			if v.Table != "excluded" || other == nil {
				continue
			}
			value, _ = other.ValueOf(stmt.Context, offered)
		}
		_ = field.Set(stmt.Context, changed, value) // what does not fit, the server will refuse
	}
	return changed
}

// fieldOf finds the field of a column that an assignment names, in any case and with
// the table in front of it, as databases do.
func fieldOf(s *schema.Schema, name string) *schema.Field {
	name = name[strings.LastIndexByte(name, '.')+1:]
	if f := s.LookUpField(name); f != nil {
		return f
	}
	for _, f := range s.Fields {
		if f.DBName != "" && strings.EqualFold(f.DBName, name) {
			return f
		}
	}
	return nil
}

// assignments returns what an update sets, before GORM has made its SET of it: as
// ConvertToAssignments does, without the times that GORM adds.
func assignments(stmt *gorm.Statement) (set clause.Set) {
	if given, ok := stmt.Clauses["SET"].Expression.(clause.Set); ok {
		return given
	}
	columns, restricted := stmt.SelectAndOmitColumns(false, true)
	chosen := func(column string) (named, chosen bool) {
		v, ok := columns[column]
		return ok, ok && v || !ok && !restricted
	}
	dest := reflect.ValueOf(stmt.Dest)
	for dest.Kind() == reflect.Pointer {
		dest = dest.Elem()
	}
	itself := false
	switch {
	case !dest.IsValid():
	case dest.Kind() == reflect.Struct:
		source := &gorm.Statement{DB: stmt.DB}
		if source.Parse(stmt.Dest) != nil {
			return nil
		}
		itself = dest.CanAddr() && stmt.Dest == stmt.Model // its keys are conditions
		for _, f := range source.Schema.Fields {
			named, ok := chosen(f.DBName)
			if f.DBName == "" || !ok || itself && f.PrimaryKey {
				continue
			}
			if value, zero := f.ValueOf(stmt.Context, dest); named || !zero {
				set = append(set, clause.Assignment{Column: clause.Column{Name: f.DBName}, Value: value})
			}
		}
	default:
		values, given := dest.Interface().(map[string]any)
		itself = given // GORM writes to the map what it finds in the model
		for name, value := range values {
			f := fieldOf(stmt.Schema, name)
			if f == nil {
				continue
			}
			if _, ok := chosen(f.DBName); ok {
				set = append(set, clause.Assignment{Column: clause.Column{Name: f.DBName}, Value: value})
			}
		}
	}
	if itself {
		models(reflect.Indirect(stmt.ReflectValue), func(model reflect.Value) {
			for _, rel := range stmt.Schema.Relationships.BelongsTo {
				if _, ok := chosen(rel.Name); ok {
					set = append(set, referenced(stmt, model, rel)...)
				}
			}
		})
	}
	return set
}

func models(v reflect.Value, yield func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		yield(v)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			models(reflect.Indirect(v.Index(i)), yield)
		}
	}
}

// referenced returns the foreign keys that GORM takes from a model to which that of
// the statement belongs, once it has saved it.
func referenced(stmt *gorm.Statement, model reflect.Value, rel *schema.Relationship) (set clause.Set) {
	value, zero := rel.Field.ValueOf(stmt.Context, model)
	other := reflect.Indirect(reflect.ValueOf(value))
	if zero || other.Kind() != reflect.Struct {
		return nil
	}
	for _, ref := range rel.References {
		if ref.OwnPrimaryKey || ref.PrimaryKey == nil {
			continue
		}
		key, unknown := ref.PrimaryKey.ValueOf(stmt.Context, other)
		if unknown {
			key = clause.Expr{} // the database will give it
		}
		set = append(set, clause.Assignment{Column: clause.Column{Name: ref.ForeignKey.DBName}, Value: key})
	}
	return set
}
