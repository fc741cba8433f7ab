package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/go-fencing/fencing/internal/sqlerror"
)

// A preparedSession enters by a statement that was prepared. The drivers of SQLite
// compile every text anew, which takes longer than to run it.
type preparedSession struct {
	sqlSession
	tx    *sql.Tx
	enter *sql.Stmt
}

// prepare prepares what a transaction in SQLite enters by. It does so before there
// is one: that may need the only connection of the pool. Where it fails, texts do.
func (g *Guard) prepare(ctx context.Context) {
	if stmt, err := g.db.PrepareContext(within(ctx), sqliteEnter); err == nil && !g.prepared.CompareAndSwap(nil, stmt) {
		_ = stmt.Close() // another goroutine was faster
	}
}

// session returns the session of a transaction. Only *sql.Tx is known to bind a
// statement to its connection; what has its methods may run it on another.
func (g *Guard) session(tx Tx) session {
	s := sqlSession{tx}
	stmt := g.prepared.Load()
	if inner, ok := tx.(*sql.Tx); ok && stmt != nil {
		return preparedSession{s, inner, stmt}
	}
	return s
}

func (s preparedSession) exec(ctx context.Context, query string, args ...any) (driver.Result, error) {
	if query != sqliteEnter {
		return s.sqlSession.exec(ctx, query, args...)
	}
	result, err := s.tx.StmtContext(ctx, s.enter).ExecContext(ctx, args...)
	if err != nil && sqlerror.SQLiteCode(err) == 0 {
		// A transaction of another *sql.DB cannot use the statement.
		return s.sqlSession.exec(ctx, query, args...)
	}
	return result, err
}
