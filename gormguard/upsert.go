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

	"github.com/go-fencing/fencing/internal/sqlerror"
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
	u := &upsert{stmt: stmt, set: set, conflict: stmt.Clauses["ON CONFLICT"], meetings: meetings(stmt, rows, keys)}
	if len(u.meetings) == 0 {
		return
	}
	restricted := p.dialect == sqlguard.MySQL && u.restrictable()
	if restricted {
		stmt.Settings.Store(upsertKey{}, u)
	}
	p.askUpsert(db, u, !restricted)
}

type upsertKey struct{}

// An upsert is an INSERT that changes the rows that it meets. It belongs to the
// statement that it points to, as a rowPlan does.
type upsert struct {
	stmt     *gorm.Statement
	set      clause.Set
	conflict clause.Clause // as it was given
	meetings []*meeting
	asked    [][]any // the primary keys of stored rows
}

// A meeting is a way for new rows to meet stored ones: by the values of some columns.
type meeting struct {
	fields []*schema.Field
	values [][]any
	rows   map[string][]reflect.Value // new ones, by what their values are alike in
}

const every, unlike = "", "\x00" // keys of meeting.rows

// met returns the new rows that the database may take for a stored one.
func (m *meeting) met(stmt *gorm.Statement, stored reflect.Value) []reflect.Value {
	text := alike(valuesOf(stmt, stored, m.fields))
	if text == unlike {
		return m.rows[every]
	}
	return slices.Concat(m.rows[unlike], m.rows[text])
}

func meetings(stmt *gorm.Statement, rows reflect.Value, keys [][]*schema.Field) (all []*meeting) {
	elements(rows, func(f Fenced) {
		row := reflect.ValueOf(f).Elem()
		for _, key := range keys {
			fields, values := offered(stmt, row, key)
			if len(fields) == 0 {
				continue
			}
			i := slices.IndexFunc(all, func(m *meeting) bool { return slices.Equal(m.fields, fields) })
			if i < 0 {
				i = len(all)
				all = append(all, &meeting{fields: fields, rows: map[string][]reflect.Value{}})
			}
			all[i].values = append(all[i].values, values)
			for _, text := range []string{every, alike(values)} {
				all[i].rows[text] = append(all[i].rows[text], row)
			}
		}
	})
	return all
}

func valuesOf(stmt *gorm.Statement, row reflect.Value, fields []*schema.Field) []any {
	values := make([]any, len(fields))
	for i, f := range fields {
		values[i], _ = f.ValueOf(stmt.Context, row)
	}
	return values
}

// questionSize is how many new rows one question is for.
const questionSize = 1000

// askUpsert asks the stored rows that an upsert may meet. A locking read of a row that
// is not there locks the gap in MySQL, at which the inserts of others wait, and theirs
// for ours: that is a deadlock. So it reads without a lock, and then locks what is
// there, by its primary key. What a plain read did not see [upsert.onlyAsked] stops.
func (p *Plugin) askUpsert(db *gorm.DB, u *upsert, lock bool) {
	primary := u.stmt.Schema.PrimaryFields
	u.asked = nil
	for start := 0; db.Error == nil; start += questionSize {
		var meet []clause.Expression
		for _, m := range u.meetings {
			if start < len(m.values) {
				meet = append(meet, in(m.fields, m.values[start:min(start+questionSize, len(m.values))]))
			}
		}
		if len(meet) == 0 {
			return
		}
		var found [][]any
		becomes := func(stored reflect.Value) (states []reflect.Value, err error) {
			found = append(found, valuesOf(u.stmt, stored, primary))
			for _, m := range u.meetings {
				states = append(states, m.met(u.stmt, stored)...)
			}
			changed, err := p.becomes(u.stmt, stored, u.set, states...)
			return append(states, changed...), err
		}
		p.ask(db, p.reading(db, lock).Where(clause.Or(meet...)), becomes)
		if there := found; !lock && len(there) > 0 && db.Error == nil {
			found = nil
			p.ask(db, p.reading(db, true).Where(in(primary, there)), becomes)
		}
		u.asked = append(u.asked, found...)
	}
}

// restrictable reports whether a condition can be built into the upsert: of as many
// values as MySQL takes in one statement, those of its rows among them.
func (u *upsert) restrictable() bool {
	c := u.stmt.Clauses["ON CONFLICT"]
	_, ok := c.Expression.(clause.OnConflict)
	values := 0
	for _, m := range u.meetings {
		values += len(m.values) * (1 + len(u.stmt.Schema.DBNames) + len(u.stmt.Schema.PrimaryFields))
	}
	return ok && untouched(c) && len(u.stmt.Schema.PrimaryFields) > 0 && values <= mysqlValues
}

func upsertOf(stmt *gorm.Statement) *upsert {
	if v, ok := stmt.Settings.Load(upsertKey{}); ok {
		if u := v.(*upsert); u.stmt == stmt {
			return u
		}
	}
	return nil
}

// askAgain comes after an upsert that has met a row which was not asked: it has come
// since, or is one of its own. So it asks with locks now, also on gaps, and the upsert
// may meet what it finds.
func (p *Plugin) askAgain(db *gorm.DB) {
	stmt := db.Statement
	u := upsertOf(stmt)
	if u == nil || sqlerror.MySQLNumber(db.Error) != mysqlOutOfRange || !strings.Contains(db.Error.Error(), metMark) {
		return
	}
	db.Error = nil
	if p.askUpsert(db, u, true); db.Error != nil {
		return
	}
	stmt.Settings.Delete(upsertKey{})
	stmt.SQL.Reset()
	stmt.Vars, stmt.Clauses["ON CONFLICT"] = nil, u.conflict
	db.Callback().Create().Get(createLink.core)(db)
}

// upserted returns what an INSERT sets in a row that it meets.
func upserted(stmt *gorm.Statement) clause.Set {
	insert, _ := stmt.Clauses["INSERT"].Expression.(clause.Insert)
	all := strings.Contains(strings.ToUpper(insert.Modifier), "REPLACE")
	var also clause.Set
	if c, ok := stmt.Clauses["ON CONFLICT"]; ok && !all {
		conflict, known := c.Expression.(clause.OnConflict)
		switch {
		case !known || !untouched(c):
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

// offered returns the values by which a new row may meet a stored one in a key, and
// their columns: without those of which only the database knows the default. There are
// none if it can meet nothing: it has NULL there, or the database will give it a
// primary key.
func offered(stmt *gorm.Statement, row reflect.Value, key []*schema.Field) (fields []*schema.Field, values []any) {
	for _, f := range key {
		value, zero := f.ValueOf(stmt.Context, row)
		switch {
		case zero && f.DefaultValueInterface != nil:
			value = f.DefaultValueInterface
		case zero && f.HasDefaultValue:
			if f.PrimaryKey || strings.EqualFold(f.DefaultValue, "null") {
				return nil, nil
			}
			continue
		case null(value):
			return nil, nil
		}
		fields, values = append(fields, f), append(values, value)
	}
	return fields, values
}

func null(value any) bool {
	if v := reflect.ValueOf(value); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return true
	}
	if v, ok := value.(driver.Valuer); ok {
		inner, err := v.Value()
		return err == nil && inner == nil
	}
	return false
}

// alike returns a text of a key that is the same for keys which the database takes for
// equal, or unlike where that cannot be said: it may ignore case, accents, and spaces at
// the end, and round what is a time.
func alike(values []any) string {
	text := ""
	for _, value := range values {
		sent, err := driver.DefaultParameterConverter.ConvertValue(value)
		if b, ok := sent.([]byte); ok { // the column may be a text
			sent = string(b)
		}
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
