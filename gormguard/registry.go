package gormguard

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm/schema"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
)

// A Fenced model says which fence a row of it needs: the name of a resource, such
// as "inventory:" + sku. It must depend on columns of the row only, and not on what
// AfterFind fills: stored rows that are asked have no hooks run. It must have no side
// effects, and is called by several goroutines at once, also with values that no row
// has. If it panics then, it counts as depending on them, which costs a read; of a row
// that is so, the panic goes to the caller, and GORM's own transaction is rolled back.
type Fenced interface {
	FenceResource() string
}

var fencedType = reflect.TypeFor[Fenced]()

// A model is what a guard knows of a schema of GORM.
type model struct {
	guarded bool
	fenced  bool          // rows name their resource
	column  *schema.Field // the version column, if the model has it
	err     error         // why it cannot be guarded
}

// model looks at a schema when it is met first, and registers its table, and the
// tables of models to which it has relations, if they are to be guarded. It must be
// the schema of a statement, which GORM has read to the end. Those in its relations
// may be in the hands of another goroutine, which has read their fields and not yet
// their own relations: they are looked at, but not remembered.
func (p *Plugin) model(s *schema.Schema) *model {
	if m, ok := p.models.Load(s); ok {
		return m.(*model)
	}
	m := p.examine(s)
	s.Relationships.Mux.RLock() // to read another model adds to the relations of this
	relations := slices.Collect(maps.Values(s.Relationships.Relations))
	s.Relationships.Mux.RUnlock()
	for _, r := range relations {
		guarded := m.guarded || r.FieldSchema != nil && p.examine(r.FieldSchema).guarded
		if r.JoinTable != nil {
			p.guardJoinTable(guarded, r.JoinTable)
			p.examine(r.JoinTable)
		}
		if s.ModelType.Name() == "" { // GORM has made it for a join, and may meet it before the models
			p.guardJoinTable(guarded, s)
		}
	}
	got, _ := p.models.LoadOrStore(s, m)
	return got.(*model)
}

// guardJoinTable guards the rows by which a guarded model is joined to others: GORM
// deletes them without a word to the model. In the other modes they would need a
// version column, and a model of their own that has it.
func (p *Plugin) guardJoinTable(guarded bool, join *schema.Schema) {
	if !guarded || p.mode != ModeFence {
		return
	}
	if name, err := rawsql.ParseTable(quoteOdd(join.Table)); err == nil {
		p.tables.Add(name, p.column)
	}
}

func (p *Plugin) examine(s *schema.Schema) *model {
	m := &model{fenced: reflect.PointerTo(s.ModelType).Implements(fencedType)}
	name, err := rawsql.ParseTable(quoteOdd(s.Table))
	if err != nil {
		return &model{err: err}
	}
	column := p.column
	for _, f := range s.Fields {
		_, tagged := f.TagSettings["FENCE"]
		if _, also := f.Tag.Lookup("fence"); tagged || also {
			if m.column != nil {
				m.err = fmt.Errorf("gormguard: model %s has two fields with the tag fence, %s and %s", s.Name, m.column.Name, f.Name)
				return m
			}
			m.column, column = f, f.DBName
			m.guarded = true
			m.err = suitable(s, f)
		}
	}
	if known, ok := p.tables.Column(name); ok {
		m.guarded = true
		if m.column == nil {
			column = known
		}
	}
	m.guarded = m.guarded || m.fenced
	if !m.guarded {
		return m
	}
	if m.column == nil {
		if m.column = s.LookUpField(column); m.column != nil && p.mode != ModeFence {
			m.err = suitable(s, m.column)
		}
	}
	p.tables.Add(name, column)
	return m
}

// quoteOdd quotes the parts of a table's name in GORM, which is written without
// quotes there, if SQL would need them.
func quoteOdd(name string) string {
	if strings.ContainsAny(name, "\"`[") {
		return name
	}
	return `"` + strings.ReplaceAll(name, ".", `"."`) + `"`
}

// suitable reports why a field of a model cannot be the version column.
func suitable(s *schema.Schema, f *schema.Field) error {
	why := ""
	switch f.FieldType.Kind() {
	case reflect.Int64, reflect.Uint64, reflect.Int, reflect.Uint:
	case reflect.Pointer:
		why = "may be NULL, and NULL is never older than a token: make it an int64"
	default:
		why = fmt.Sprintf("is a %s and not a 64-bit integer", f.FieldType)
	}
	switch {
	case f.Serializer != nil:
		why = "has a serializer, and what that stores does not compare like a number"
	case f.DBName == "":
		why = "has no column"
	case f.PrimaryKey:
		why = "is part of the primary key"
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("gormguard: model %s: field %s %s", s.Name, f.Name, why)
}
