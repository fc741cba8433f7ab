package gormguard

import (
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/go-fencing/fencing/sqlguard"
)

type questionKey struct{}

// reading returns a query of rows of the statement's table, to be asked for their
// fences. To lock them, as the statement is about to, is for MySQL, where a plain read
// would see them as they were when the transaction began.
func (p *Plugin) reading(db *gorm.DB, lock bool) *gorm.DB {
	stmt := db.Statement
	q := db.Session(&gorm.Session{NewDB: true, SkipHooks: true}).Model(reflect.New(stmt.Schema.ModelType).Interface())
	q.Statement.Schema, q.Statement.Table, q.Statement.TableExpr = stmt.Schema, stmt.Table, stmt.TableExpr
	q.Statement.Settings.Store(questionKey{}, true)
	if lock && p.dialect == sqlguard.MySQL {
		q = q.Clauses(clause.Locking{Strength: "UPDATE"})
	}
	return q
}

// build writes the text of a question, before GORM adds the conditions by which the types
// of a model hide rows from queries. Those of a soft delete are there, see alive.
func build(q *gorm.DB) {
	q.Statement.AddClauseIfNotExists(clause.Select{})
	q.Statement.AddClauseIfNotExists(clause.From{})
	q.Statement.Build("SELECT", "FROM", "WHERE", "ORDER BY", "LIMIT", "FOR")
}

// within prepares the transaction in which a question is asked, that of the write: the
// fences, which hold off others in SQLite, and the locks of the question are to last
// until then.
func (p *Plugin) within(db *gorm.DB, q *gorm.DB) error {
	stmt := db.Statement
	if c, ok := stmt.ConnPool.(*pool); ok && !c.begunBySQL(stmt.Context) {
		t, err := c.begin(stmt.Context, nil)
		if err != nil {
			return err
		}
		stmt.Settings.Store(ownKey{}, &ownTransaction{stmt, t, c})
		stmt.ConnPool = t
		if p.mode.fences() {
			if err := t.enter(stmt.Context); err != nil {
				return err
			}
		}
	}
	q.Statement.ConnPool = stmt.ConnPool
	return p.writeFirst(db)
}

// writeFirst makes a writer of a transaction of SQLite before the question, by writing
// nothing. A transaction that has read and then writes fails if anybody else has written
// meanwhile, however long it may wait. In the other modes it has entered a fence.
func (p *Plugin) writeFirst(db *gorm.DB) error {
	t, ok := db.Statement.ConnPool.(*transaction)
	if !ok || p.mode.fences() || p.dialect != sqlguard.SQLite {
		return nil
	}
	_, err := t.raw.ExecContext(db.Statement.Context, "DELETE FROM "+db.Statement.Quote(p.target(db.Statement))+" WHERE 0")
	return err
}

type ownKey struct{}

// An ownTransaction is begun for a question where GORM begins none. It belongs to the
// statement that it points to, as a rowPlan does.
type ownTransaction struct {
	stmt *gorm.Statement
	tx   *transaction
	pool *pool
}

// endOwn ends it, before the hooks that come after the statement.
func endOwn(db *gorm.DB, commit bool) {
	v, ok := db.Statement.Settings.Load(ownKey{})
	if !ok || v.(*ownTransaction).stmt != db.Statement {
		return
	}
	own := v.(*ownTransaction)
	db.Statement.Settings.Delete(ownKey{})
	db.Statement.ConnPool = own.pool
	if !commit {
		_ = own.tx.Rollback() // an error, or a panic, says more
		return
	}
	_ = db.AddError(own.tx.Commit())
}
