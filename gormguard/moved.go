package gormguard

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/callbacks"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"
)

// assignments returns what an update sets: GORM's own conversion says it, of a
// statement whose models it cannot reach.
func assignments(stmt *gorm.Statement) clause.Set {
	if c, given := stmt.Clauses["SET"]; given {
		if set, ok := c.Expression.(clause.Set); ok && untouched(c) {
			return set
		}
		return unreadable
	}
	return callbacks.ConvertToAssignments(aside(stmt))
}

// unreadable is what a clause sets that cannot be read.
var unreadable = clause.Set{{Column: clause.Column{Name: "(an expression or a builder of its own)"}}}

// aside returns a statement with which GORM can convert what is written, and neither
// the models nor the clauses of stmt change.
func aside(stmt *gorm.Statement) *gorm.Statement {
	models := stmt.ReflectValue
	if models.IsValid() {
		models = reflect.ValueOf(models.Interface()) // not addressable: GORM leaves it as it is
	}
	return &gorm.Statement{
		DB: stmt.DB, Context: stmt.Context, Schema: stmt.Schema, Table: stmt.Table, Model: stmt.Model, Dest: stmt.Dest, ReflectValue: models,
		Selects: stmt.Selects, Omits: stmt.Omits, SkipHooks: stmt.SkipHooks, Clauses: map[string]clause.Clause{},
	}
}

// becomes returns a stored row as the statement leaves it, for each of the new rows
// that it may meet. It refuses what only the database could say.
func (p *Plugin) becomes(stmt *gorm.Statement, row reflect.Value, set clause.Set, offered ...reflect.Value) (states []reflect.Value, err error) {
	for _, o := range offered {
		changed, unknown := assigned(stmt, row, set, o)
		if err := p.refuseUnknown(stmt, row, unknown); err != nil {
			return nil, err
		}
		states = append(states, changed)
	}
	return states, nil
}

// refuseUnknown refuses columns of unknown values on which the resource of a row
// depends.
func (p *Plugin) refuseUnknown(stmt *gorm.Statement, row reflect.Value, unknown clause.Set) error {
	if len(unknown) == 0 || !depends(stmt, row, unknown) {
		return nil
	}
	names := ""
	for _, a := range unknown {
		if depends(stmt, row, clause.Set{a}) {
			names += fmt.Sprintf("%q ", a.Column.Name)
		}
	}
	return p.refuse(stmt.Context, raw(stmt.Table, "it sets "+cmp.Or(names, "columns ")+"to what only the database can say, and the row's resource depends on that;"+
		" set a plain value of the field's type, under the fences of both resources"))
}

// assigned returns a copy of row as the assignments leave it, and those of them of
// which Go cannot know that. Columns that an upsert sets to those of the new row
// (excluded.x) are taken from offered.
func assigned(stmt *gorm.Statement, row reflect.Value, set clause.Set, offered reflect.Value) (changed reflect.Value, unknown clause.Set) {
	changed = reflect.New(row.Type()).Elem()
	changed.Set(row)
	for _, a := range set {
		field := fieldOf(stmt.Schema, a.Column.Name)
		if field == nil {
			if odd(a.Column.Name) {
				unknown = append(unknown, a)
			}
			continue
		}
		value := a.Value
		if c, ok := value.(clause.Column); ok && c.Table == "excluded" {
			if other := fieldOf(stmt.Schema, c.Name); other != nil {
				value, _ = other.ValueOf(stmt.Context, offered)
			}
		}
		if !assign(stmt.Context, field, changed, value) {
			unknown = append(unknown, a)
		}
	}
	return changed, unknown
}

// assign sets a field of a copy, and reports whether it then is what the column will
// be. Of a value that is not of the field's own type it is, if GORM would send the same
// for the field as for the value. It would not for an expression, for "010" in a
// number, which may be 8 in Go, or for what a serializer has yet to read.
func assign(ctx context.Context, field *schema.Field, row reflect.Value, value any) bool {
	own := place(row, field)
	own.SetZero() // Set writes to what a pointer points to, which is the model's
	switch value.(type) {
	case clause.Expression, clause.Interface:
		return false
	}
	if reflect.TypeOf(value) == field.FieldType && field.Serializer == nil {
		own.Set(reflect.ValueOf(value))
		return true
	}
	if _, expression := value.(gorm.Valuer); expression {
		return false
	}
	sent, err := driver.DefaultParameterConverter.ConvertValue(value)
	if err != nil || sent == nil {
		return err == nil // NULL is read as zero
	}
	if field.Set(ctx, row, value) != nil {
		return false
	}
	holds, _ := field.ValueOf(ctx, row)
	same, err := driver.DefaultParameterConverter.ConvertValue(holds)
	return err == nil && equal(sent, same)
}

// equal reports whether the database takes two values for the same. A float may be a
// whole number, as all are in JSON; what text it would be is the database's to say.
func equal(sent, same driver.Value) bool {
	f, float := sent.(float64)
	if !float {
		return fmt.Sprint(sent) == fmt.Sprint(same)
	}
	whole, ok := same.(int64)
	return sent == same || ok && float64(whole) == f
}

// place returns the memory of a field in a copy of a model, like GORM's
// ReflectValueOf, but nothing that the copy shares with the model: an embedded pointer
// on the way there is copied.
func place(row reflect.Value, field *schema.Field) reflect.Value {
	for _, i := range field.StructField.Index {
		if i >= 0 {
			row = row.Field(i)
			continue
		}
		row = row.Field(-i - 1) // so GORM marks a pointer
		own := reflect.New(row.Type().Elem())
		if !row.IsNil() {
			own.Elem().Set(row.Elem())
		}
		row.Set(own)
		row = own.Elem()
	}
	return row
}

// fieldOf finds the field of a column as SQL names it: in any case, with the table in
// front of it, and in quotes.
func fieldOf(s *schema.Schema, name string) *schema.Field {
	if f := s.FieldsByDBName[name]; f != nil || odd(name) {
		return f
	}
	name = strings.Trim(name[strings.LastIndexByte(name, '.')+1:], "\"`")
	i := slices.IndexFunc(s.Fields, func(f *schema.Field) bool { return f.DBName != "" && strings.EqualFold(f.DBName, name) })
	if i < 0 {
		return nil
	}
	return s.Fields[i]
}

// odd reports whether a name may mean another column than it seems to, so that it
// cannot be said that the model does not have it: MySQL ignores accents in names.
func odd(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_$.\"`", r))
	})
}
