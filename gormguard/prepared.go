package gormguard

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"
)

// A preparedTexts knows the texts of prepared statements that write guarded tables,
// for as long as these live: a cache hands them out again without their texts.
type preparedTexts struct{ byStmt sync.Map }

func (p *preparedTexts) add(stmt *sql.Stmt, query string) {
	key := weak.Make(stmt)
	p.byStmt.Store(key, query)
	runtime.AddCleanup(stmt, func(key weak.Pointer[sql.Stmt]) { p.byStmt.Delete(key) }, key)
}

func (p *preparedTexts) text(stmt *sql.Stmt) (query string, ok bool) {
	v, ok := p.byStmt.Load(weak.Make(stmt))
	if ok {
		query = v.(string)
	}
	return query, ok
}
