package gormguard

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/go-fencing/fencing/sqlguard"
)

// checkUpsert refuses new rows that may change stored ones of another resource, or
// make them rows of another. As with an update, what the new rows say is believed if
// the columns that are set tell nothing of a resource, and the conflict is one of
// primary keys.
func (p *Plugin) checkUpsert(db *gorm.DB, rows reflect.Value) {
	stmt := db.Statement
	set := upserted(stmt)
	if len(set) == 0 {
		return
	}
	keys := p.conflictKeys(stmt)
	if len(keys) == 1 && slices.Equal(keys[0], stmt.Schema.PrimaryFields) && settled(stmt, rows, set) {
		return
	}
	type key struct {
		of   int    // which of the keys
		text string // "" for every row
	}
	offered := map[key][]reflect.Value{}
	var meet []clause.Expression
	elements(rows, func(f Fenced) {
		row := reflect.ValueOf(f).Elem()
		for i, fields := range keys {
			if c := equal(stmt, row, fields); c != nil {
				meet = append(meet, c)
				offered[key{i, ""}] = append(offered[key{i, ""}], row)
				k := key{i, alike(stmt, row, fields)}
				offered[k] = append(offered[k], row)
			}
		}
	})
	if len(meet) == 0 {
		return
	}
	q := reading(db).Unscoped().Clauses(clause.Where{Exprs: []clause.Expression{clause.Or(meet...)}})
	p.ask(db, q, func(stored reflect.Value) ([]reflect.Value, error) {
		var met []reflect.Value
		for i, fields := range keys {
			k := key{i, alike(stmt, stored, fields)}
			if k.text == unlike {
				k.text = ""
			} else {
				met = append(met, offered[key{i, unlike}]...)
			}
			met = append(met, offered[k]...)
		}
		return p.becomes(stmt, stored, set, met...)
	})
}

// upserted returns what an INSERT sets in a row that it meets.
func upserted(stmt *gorm.Statement) clause.Set {
	insert, _ := stmt.Clauses["INSERT"].Expression.(clause.Insert)
	all := strings.Contains(strings.ToUpper(insert.Modifier), "REPLACE")
	var also clause.Set
	if c, ok := stmt.Clauses["ON CONFLICT"]; ok && !all {
		conflict, known := c.Expression.(clause.OnConflict)
		switch {
		case !known || amended(c):
			return unreadable
		case conflict.DoNothing:
			return nil
		case !conflict.UpdateAll:
			return conflict.DoUpdates
		}
		all, also = true, conflict.DoUpdates
	}
	if !all {
		return nil
	}
	var columns []string
	for _, f := range stmt.Schema.Fields {
		if f.DBName != "" && !f.PrimaryKey {
			columns = append(columns, f.DBName)
		}
	}
	return append(clause.AssignmentColumns(columns), also...)
}

// conflictKeys returns the keys by which a new row may meet a stored one: those of
// ON CONFLICT, or else all that are known. MySQL does not let one choose.
func (p *Plugin) conflictKeys(stmt *gorm.Statement) [][]*schema.Field {
	s := stmt.Schema
	insert, _ := stmt.Clauses["INSERT"].Expression.(clause.Insert)
	conflict, _ := stmt.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
	if p.dialect != sqlguard.MySQL && insert.Modifier == "" && conflict.OnConstraint == "" {
		var fields []*schema.Field
		for _, c := range conflict.Columns {
			fields = append(fields, fieldOf(s, c.Name))
		}
		switch {
		case conflict.UpdateAll && len(fields) == 0:
			return [][]*schema.Field{s.PrimaryFields}
		case len(fields) > 0 && !slices.Contains(fields, nil):
			return [][]*schema.Field{fields}
		}
	}
	var keys [][]*schema.Field
	if len(s.PrimaryFields) > 0 {
		keys = append(keys, s.PrimaryFields)
	}
	for _, f := range s.Fields {
		if f.Unique && f.DBName != "" && !f.PrimaryKey {
			keys = append(keys, []*schema.Field{f})
		}
	}
	for _, index := range s.ParseIndexes() {
		if index.Class != "UNIQUE" {
			continue
		}
		var fields []*schema.Field
		for _, option := range index.Fields {
			fields = append(fields, option.Field)
		}
		keys = append(keys, fields)
	}
	return keys
}

// equal returns the condition that a stored row has the values of a new one, or nil
// if the new one has none there: a number that the database will give it, or NULL,
// which meets nothing.
func equal(stmt *gorm.Statement, row reflect.Value, fields []*schema.Field) clause.Expression {
	var same []clause.Expression
	for _, f := range fields {
		value, zero := f.ValueOf(stmt.Context, row)
		if zero && f.HasDefaultValue {
			return nil
		}
		if v := reflect.ValueOf(value); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil
		}
		if v, ok := value.(driver.Valuer); ok {
			if inner, err := v.Value(); err == nil && inner == nil {
				return nil
			}
		}
		same = append(same, clause.Eq{Column: clause.Column{Table: clause.CurrentTable, Name: f.DBName}, Value: value})
	}
	return clause.And(same...)
}

const unlike = "\x00"

// alike returns a text of a key that is the same for keys which the database takes for
// equal, or unlike where that cannot be said: it may ignore case, accents, and spaces at
// the end, and round what is a time.
func alike(stmt *gorm.Statement, row reflect.Value, fields []*schema.Field) string {
	text := ""
	for _, f := range fields {
		value, _ := f.ValueOf(stmt.Context, row)
		sent, err := driver.DefaultParameterConverter.ConvertValue(value)
		switch v := sent.(type) {
		case string:
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
				return unlike
			}
			sent = strings.ToLower(strings.TrimRight(v, " "))
		case time.Time:
			return unlike
		}
		if err != nil {
			return unlike
		}
		text += fmt.Sprintf("%v\x00", sent)
	}
	return text
}
