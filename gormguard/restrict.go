package gormguard

import (
	"fmt"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// takeRestricted stands in front of the clauses by which a statement of MySQL is kept to
// the rows that were asked.
func takeRestricted(db *gorm.DB) {
	for name, restrict := range map[string]func(clause.Clause, *gorm.Statement) clause.Clause{
		"ON CONFLICT": func(c clause.Clause, stmt *gorm.Statement) clause.Clause {
			if u := upsertOf(stmt); u != nil {
				c = u.onlyAsked(c)
			}
			return c
		},
		"WHERE": func(c clause.Clause, stmt *gorm.Statement) clause.Clause {
			if l := limitedOf(stmt); l != nil {
				c = l.onlyAsked(c)
			}
			return c
		},
	} {
		next := db.ClauseBuilders[name]
		db.ClauseBuilders[name] = func(c clause.Clause, builder clause.Builder) {
			if stmt, ok := builder.(*gorm.Statement); ok {
				c = restrict(c, stmt)
			}
			if next != nil {
				next(c, builder)
				return
			}
			c.Build(builder)
		}
	}
}

// untouched reports whether a clause is built of its expression alone.
func untouched(c clause.Clause) bool {
	return c.Builder == nil && c.BeforeExpression == nil && c.AfterNameExpression == nil && c.AfterExpression == nil
}

const (
	mysqlValues     = 1<<16 - 1
	mysqlOutOfRange = 1690                      // ER_DATA_OUT_OF_RANGE
	metMark         = "18446744073709551615 + " // is in its text
)

// onlyAsked makes the statement fail at a row that was not asked, by a sum that is out
// of range. It must not be constant, as in compared. The key is set to what it is.
func (u *upsert) onlyAsked(c clause.Clause) clause.Clause {
	conflict, ok := c.Expression.(clause.OnConflict)
	if !ok || len(conflict.DoUpdates) == 0 {
		return c
	}
	key := clause.Column{Name: u.stmt.Schema.PrimaryFields[0].DBName}
	check := clause.Expr{SQL: "WHEN " + metMark + "(1 + LENGTH(?)) THEN ? END", Vars: []any{key, key}, WithoutParentheses: true}
	if len(u.asked) > 0 {
		check.SQL = "WHEN ? THEN ? " + check.SQL
		check.Vars = append([]any{in(u.stmt.Schema.PrimaryFields, u.asked), key}, check.Vars...)
	}
	check.SQL = "CASE " + check.SQL
	conflict.DoUpdates = append(clause.Set{{Column: key, Value: check}}, conflict.DoUpdates...)
	c.Expression = conflict
	return c
}

type limitedKey struct{}

// A limited statement is an update or a delete with a LIMIT, which is asked with the
// same: but in the order of an index, or in none, that may be at other rows the second
// time. It belongs to the statement that it points to, as a rowPlan does.
type limited struct {
	stmt  *gorm.Statement
	asked [][]any // the primary keys of its rows
}

func limitedOf(stmt *gorm.Statement) *limited {
	if v, ok := stmt.Settings.Load(limitedKey{}); ok {
		if l := v.(*limited); l.stmt == stmt {
			return l
		}
	}
	return nil
}

// onlyAsked adds the keys to the conditions.
func (l *limited) onlyAsked(c clause.Clause) clause.Clause {
	if where, ok := c.Expression.(clause.Where); ok {
		c.Expression = askedWhere{where, l}
	}
	return c
}

type askedWhere struct {
	clause.Where
	limited *limited
}

func (w askedWhere) Build(b clause.Builder) {
	_ = b.WriteByte('(')
	clause.Where{Exprs: slices.Clone(w.Exprs)}.Build(b)
	_, _ = b.WriteString(") AND ")
	if len(w.limited.asked) == 0 {
		_, _ = b.WriteString("1 = 0")
		return
	}
	stmt, keys := w.limited.stmt, w.limited.asked
	in(stmt.Schema.PrimaryFields, keys).Build(b)
	if len(stmt.Vars) > mysqlValues {
		_ = b.AddError(fmt.Errorf("gormguard: write to %q: its rows are named by their keys, and a statement of MySQL has at most %d values: take a smaller LIMIT than %d; nothing was written", stmt.Table, mysqlValues, len(keys)))
	}
}
