package gormguard

import (
	"database/sql"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
)

// believed reports whether the models of a statement answer for the rows that it
// meets, so that these need not be read: they name fences that are there, GORM adds
// their keys to conditions that cannot reach further, and what is set tells nothing
// of a resource. Whoever changes a model that he has read and saves it whole has
// overwritten what it said of the row.
func (p *Plugin) believed(stmt *gorm.Statement, set clause.Set) (yes bool) {
	defer func() {
		if recover() != nil { // FenceResource of what is no row, such as Item{ID: 1}
			yes = false
		}
	}()
	resource, count := foreign(stmt, stmt.ReflectValue)
	return resource == "" && count > 0 && identified(stmt) && p.narrowed(stmt) && settled(stmt, stmt.ReflectValue, set)
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

// narrowed reports whether the statement meets only rows that its models name by
// their keys. GORM appends the keys with AND and without brackets: one OR in front
// of them, and they bind to its last alternative only. It appends none to an update
// whose SET was given as a clause.
func (p *Plugin) narrowed(stmt *gorm.Statement) bool {
	if _, given := stmt.Clauses["SET"]; given {
		return false
	}
	c, ok := stmt.Clauses["WHERE"]
	if !ok {
		return true
	}
	where, ok := c.Expression.(clause.Where)
	return ok && untouched(c) &&
		!slices.ContainsFunc(where.Exprs, func(e clause.Expression) bool { return !p.conjunct(e) })
}

// conjunct reports whether a condition certainly stays one operand of AND. It does
// not have to know all that do: to be unsure costs a round trip.
func (p *Plugin) conjunct(e clause.Expression) bool {
	switch e := e.(type) {
	case clause.Eq:
		return column(e.Column) && plain(e.Value)
	case clause.Neq:
		return column(e.Column) && plain(e.Value)
	case clause.IN:
		return column(e.Column) && !slices.ContainsFunc(e.Values, func(v any) bool { return !plain(v) })
	case clause.AndConditions:
		return !slices.ContainsFunc(e.Exprs, func(e clause.Expression) bool { return !p.conjunct(e) })
	case clause.Expr:
		return p.conjunctText(e.SQL) && !slices.ContainsFunc(e.Vars, func(v any) bool { return !plain(v) })
	}
	return false
}

func column(c any) bool {
	name, ok := c.(string)
	if column, is := c.(clause.Column); is {
		name, ok = column.Name, !column.Raw
	}
	return ok && !strings.ContainsAny(name, "\"`' ()-;|")
}

func (p *Plugin) conjunctText(sql string) bool {
	l := p.lexer(sql)
	depth := 0
	for {
		t, ok := l.Next()
		switch {
		case !ok:
			return depth == 0 && !l.Odd && !l.Comment
		case t.Kind == rawsql.Punct && t.Text == "(":
			depth++
		case t.Kind == rawsql.Punct && t.Text == ")":
			if depth--; depth < 0 {
				return false
			}
		case t.Kind == rawsql.Punct && (t.Text == "|" || t.Text == ";"), // || is OR in MySQL
			t.Is("OR", "XOR", "BETWEEN", "ORDER", "LIMIT", "RETURNING"): // or the keys become part of what it begins
			return false
		}
	}
}

// settled reports whether the resources of models do not depend on the columns that
// are set.
func settled(stmt *gorm.Statement, models reflect.Value, set clause.Set) bool {
	same := true
	elements(models, func(f Fenced) {
		row := reflect.ValueOf(f).Elem()
		same = same && row.Type() == stmt.Schema.ModelType && !depends(stmt, row, set)
	})
	return same
}

// depends reports whether the resource of a row depends on the columns that are set.
// FenceResource is a function of Go, so it is tried: with nothing in these columns,
// with something else, and with what the statement sets. No row ever had such values,
// so it may panic.
func depends(stmt *gorm.Statement, row reflect.Value, set clause.Set) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = true
		}
	}()
	emptied, filled := reflect.New(row.Type()).Elem(), reflect.New(row.Type()).Elem()
	emptied.Set(row)
	filled.Set(row)
	for _, a := range set {
		field := fieldOf(stmt.Schema, a.Column.Name)
		if field == nil && odd(a.Column.Name) {
			return true
		}
		if field == nil { // a column that the model does not have
			continue
		}
		place(emptied, field).SetZero()
		other := place(filled, field)
		other.SetZero() // a Scan may write into what it shares with the model
		if !fill(other) {
			return true // no other value is at hand
		}
	}
	changed, _ := assigned(stmt, row, set, row)
	for _, other := range []reflect.Value{emptied, filled, changed} {
		elements(other, func(o Fenced) { yes = yes || o.FenceResource() != row.Addr().Interface().(Fenced).FenceResource() })
	}
	return yes
}

// fill puts something into a value that is not zero.
func fill(v reflect.Value) bool { return fillTo(v, 3) }

func fillTo(v reflect.Value, depth int) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(113)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(113)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(113)
	case reflect.String:
		v.SetString("gormguard: something else")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return depth > 0 && fillTo(v.Elem(), depth-1)
	case reflect.Interface:
		other := reflect.ValueOf("gormguard: something else")
		if !other.CanConvert(v.Type()) {
			return false
		}
		v.Set(other)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		if depth == 0 || !fillTo(key, depth-1) {
			return false
		}
		fillTo(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return depth > 0 && fillTo(v.Index(0), depth-1)
	case reflect.Array:
		return v.Len() > 0 && depth > 0 && fillTo(v.Index(0), depth-1)
	case reflect.Struct: // sql.NullString, gorm.DeletedAt
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(113, 0)))
			return true
		}
		filled := false
		for i := range v.NumField() {
			filled = v.Field(i).CanSet() && depth > 0 && fillTo(v.Field(i), depth-1) || filled
		}
		scanner, ok := v.Addr().Interface().(sql.Scanner) // a decimal, whose fields are its own
		return filled || ok && scanner.Scan("113") == nil
	default:
		return false
	}
	return true
}
