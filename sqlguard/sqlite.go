package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

// sqliteEngine takes the one write lock of the database, to raise and to enter.
type sqliteEngine struct{}

const (
	sqliteRecord = "SELECT token, nonce, holder, raised_at FROM " + fenceTable + " WHERE resource = ?"
	sqliteUpsert = "INSERT INTO " + fenceTable + " (resource, token, nonce, holder, raised_at) VALUES (?, ?, ?, ?, ?)" +
		" ON CONFLICT (resource) DO UPDATE SET token = excluded.token, nonce = excluded.nonce, holder = excluded.holder, raised_at = excluded.raised_at"

	// sqliteEnter takes the write lock and finds the fence in force, in one
	// statement: that is faster than two, although it writes a page. It sets a
	// column without a CHECK: SQLite compiles those of the others each time, which
	// would take three times as long.
	sqliteEnter = "UPDATE " + fenceTable + " SET raised_at = raised_at WHERE resource = ? AND token = ? AND nonce = ?"
)

// A raise asks for the lock more often than a transaction does, which also stands
// back while a raise of this process waits. SQLite has no queue, and a stream of
// transactions would keep a raise waiting for seconds otherwise.
const (
	raisePoll = 2 * time.Millisecond
	enterPoll = 10 * time.Millisecond
	standBack = 20 * time.Millisecond // at most: the raise may be of another file
)

// sqliteRaises counts the raises of this process that wait.
var sqliteRaises atomic.Int32

// enter takes the write lock as the first statement: a transaction that has read
// before can be refused it for ever (SQLITE_BUSY_SNAPSHOT). One that will not write
// only reads: what it sees is all from the moment when its fences were in force.
func (sqliteEngine) enter(ctx context.Context, tx session, s *settings, held []guard.Fence, e entering) error {
	start := time.Now()
	busy, err := untilFree(ctx, s.lockTimeout, enterPoll, func() error {
		if !e.readOnly {
			entered, err := updateFences(ctx, tx, held)
			if err != nil || entered {
				return err
			}
		}
		return compare(held, func(f guard.Fence) (guard.Record, error) { return readSQLite(ctx, tx, f.Resource) })
	})
	if busy {
		return &BlockedError{Resource: held[0].Resource, Waited: time.Since(start), cause: because(ctx, err)}
	}
	return err
}

// updateFences reports whether all are in force. What else they are is left to
// compare.
func updateFences(ctx context.Context, tx session, held []guard.Fence) (entered bool, err error) {
	for _, f := range held {
		result, err := tx.exec(ctx, sqliteEnter, f.Resource, int64(f.Token), f.Nonce)
		if err != nil {
			return false, err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return false, err
		}
	}
	return true, nil
}

func readSQLite(ctx context.Context, tx session, resource string) (guard.Record, error) {
	return readRecord(ctx, tx, resource, sqliteRecord, resource)
}

// untilFree calls do until it finds the database not busy, and reports whether it
// gave up on that. Waiting is done here and not in SQLite, whose busy timeout is a
// setting of the connection, and the caller's. To open a connection can find it
// busy too, and with a rollback journal so can to read.
func untilFree(ctx context.Context, timeout, poll time.Duration, do func() error) (busy bool, err error) {
	deadline := time.Now().Add(timeout)
	for wait := poll / 8; ; wait = min(2*wait, poll) {
		if poll == enterPoll {
			waitForRaises(ctx)
		}
		was := busy
		err = do()
		busy = isBusy(err) && sqlerror.SQLiteCode(err) != sqliteBusySnapshot
		switch {
		case err == nil:
			return false, nil
		case !busy: // the context may have ended while it was
			return was && ctx.Err() != nil, err
		case time.Now().Add(wait).After(deadline), !sleep(ctx, wait):
			return true, err
		}
	}
}

func waitForRaises(ctx context.Context) {
	for start := time.Now(); sqliteRaises.Load() > 0 && time.Since(start) < standBack; {
		if !sleep(ctx, raisePoll) {
			return
		}
	}
}

// sleep reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (sqliteEngine) raise(ctx context.Context, db *sql.DB, s *settings, c claim) (guard.Record, error) {
	start := time.Now()
	giveUp := func(ctx context.Context, err error) error {
		return &BlockedError{Resource: c.Resource, Waited: time.Since(start), cause: because(ctx, err)}
	}
	left := func() time.Duration { return s.lockTimeout - time.Since(start) }
	// The pool may have one connection, which the transaction in the way has.
	bounded, cancel := context.WithTimeoutCause(ctx, s.lockTimeout, fmt.Errorf("the lock timeout of %v is over", s.lockTimeout))
	defer cancel()
	var conn *sql.Conn
	busy, err := untilFree(ctx, left(), raisePoll, func() (err error) { conn, err = db.Conn(bounded); return err })
	if busy || err != nil && bounded.Err() != nil {
		return guard.Record{}, giveUp(bounded, err)
	}
	if err != nil {
		return guard.Record{}, err
	}
	defer func() { _ = conn.Close() }()
	session := sqlSession{conn}
	run := func(query string) error {
		_, err := session.exec(ctx, query)
		return err
	}
	restore, err := noBusyTimeout(ctx, session)
	if err != nil {
		return guard.Record{}, err
	}
	defer restore()

	sqliteRaises.Add(1)
	busy, err = untilFree(ctx, left(), raisePoll, func() error { return run("BEGIN IMMEDIATE") })
	sqliteRaises.Add(-1)
	if busy {
		return guard.Record{}, giveUp(ctx, err)
	}
	if err != nil {
		return guard.Record{}, err
	}
	done := false
	defer func() {
		if !done {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
			defer cancel()
			_, _ = session.exec(ctx, "ROLLBACK")
		}
	}()
	current, err := readSQLite(ctx, session, c.Resource)
	if err != nil {
		return guard.Record{}, err
	}
	next, changed, err := c.over(current)
	if err != nil || !changed {
		return current, err
	}
	now := time.Now()
	if _, err := session.exec(ctx, sqliteUpsert, c.Resource, int64(next.Token), next.Nonce, next.Holder, now.UnixMicro()); err != nil {
		return guard.Record{}, err
	}
	// With a rollback journal the commit has to wait for readers; it can be repeated.
	busy, err = untilFree(ctx, left(), raisePoll, func() error { return run("COMMIT") })
	if busy && isBusy(err) {
		return guard.Record{}, giveUp(ctx, err)
	}
	done = err == nil
	return guard.Record{Fence: next, Since: now}, err
}

// noBusyTimeout turns the connection's busy timeout off, during which SQLite asks
// for the lock at intervals of up to 100ms.
func noBusyTimeout(ctx context.Context, conn session) (restore func(), err error) {
	var before int64
	if _, err := conn.row(ctx, "PRAGMA busy_timeout", nil, &before); err != nil {
		return nil, err
	}
	if before == 0 {
		return func() {}, nil
	}
	set := func(ctx context.Context, ms int64) error {
		_, err := conn.exec(ctx, "PRAGMA busy_timeout = "+strconv.FormatInt(ms, 10))
		return err
	}
	if err := set(ctx, 0); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
		defer cancel()
		_ = set(ctx, before) // it fails only with the connection
	}, nil
}

func (sqliteEngine) begin(ctx context.Context, db *sql.DB, o sql.TxOptions, s *settings) (tx *sql.Tx, err error) {
	_, err = untilFree(ctx, s.lockTimeout, enterPoll, func() error { tx, err = db.BeginTx(ctx, &o); return err })
	return tx, err
}

func (sqliteEngine) begins(o sql.TxOptions) (sql.TxOptions, string) { return o, "" }

// readOnly: the drivers take a read-only transaction for a hint.
func (sqliteEngine) readOnly() (on, off string) {
	return "PRAGMA query_only = 1", "PRAGMA query_only = 0"
}

// open: COMMIT is an error where there is no transaction.
func (sqliteEngine) open(context.Context, session) (bool, error) { return true, nil }

// rolledBack tries to begin a transaction, which fails while there is one. INSERT
// OR ROLLBACK, a trigger's RAISE(ROLLBACK) and some errors, such as that of a full
// disk, end it.
func (sqliteEngine) rolledBack(ctx context.Context, tx session, _ error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
	defer cancel()
	_, err := tx.exec(ctx, "BEGIN")
	return err == nil // it has to be rolled back now as the other one had
}

func (sqliteEngine) check(ctx context.Context, tx session, s *settings) error {
	var n int64
	_, err := untilFree(ctx, s.lockTimeout, enterPoll, func() error {
		_, err := tx.row(ctx, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '"+fenceTable+"'", nil, &n)
		return err
	})
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("%w: there is no table %s; install it with package migrations", ErrSchema, fenceTable)
	}
	return nil
}
