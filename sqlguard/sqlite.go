package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// sqliteEngine takes the one write lock of the database, to raise and to enter.
type sqliteEngine struct{}

const (
	sqliteRecord = "SELECT token, nonce, holder, raised_at FROM " + fenceTable + " WHERE resource = ?"
	sqliteUpsert = "INSERT INTO " + fenceTable + " (resource, token, nonce, holder, raised_at) VALUES (?, ?, ?, ?, ?)" +
		" ON CONFLICT (resource) DO UPDATE SET token = excluded.token, nonce = excluded.nonce, holder = excluded.holder, raised_at = excluded.raised_at"

	// sqliteLock takes the write lock and writes nothing.
	sqliteLock = "UPDATE " + fenceTable + " SET token = token WHERE 0"
)

// A raise asks for the lock more often than a transaction does. SQLite has no
// queue, and a stream of transactions would keep a raise waiting otherwise.
const (
	raisePoll = 2 * time.Millisecond
	enterPoll = 10 * time.Millisecond
)

// enter takes the write lock as the first statement: a transaction that has read
// before can be refused it for ever (SQLITE_BUSY_SNAPSHOT). One that will not write
// only reads: what it sees is all from the moment when its fences were in force.
func (sqliteEngine) enter(ctx context.Context, tx session, s *settings, held []guard.Fence, readOnly bool) error {
	if !readOnly {
		start := time.Now()
		busy, err := untilFree(ctx, s.lockTimeout, enterPoll, func() error { return tx.exec(ctx, sqliteLock) })
		if busy {
			return &BlockedError{Resource: held[0].Resource, Waited: time.Since(start), cause: because(ctx, err)}
		}
		if err != nil {
			return err
		}
	}
	return compare(ctx, tx, sqliteRecord, held)
}

// untilFree calls do until it finds the database not busy, and reports whether it
// gave up on that. Waiting is done here and not in SQLite, whose busy timeout is a
// setting of the connection, and the caller's. To open a connection can find it
// busy too, and with a rollback journal so can to read.
func untilFree(ctx context.Context, timeout, poll time.Duration, do func() error) (busy bool, err error) {
	deadline := time.Now().Add(timeout)
	wait := poll / 8
	for {
		err := do()
		if !isBusy(err) || sqliteCode(err) == sqliteBusySnapshot {
			return false, err
		}
		if time.Now().Add(wait).After(deadline) {
			return true, err
		}
		select {
		case <-ctx.Done():
			return true, err
		case <-time.After(wait):
		}
		wait = min(2*wait, poll)
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
	restore, err := noBusyTimeout(ctx, session)
	if err != nil {
		return guard.Record{}, err
	}
	defer restore()

	busy, err = untilFree(ctx, left(), raisePoll, func() error { return session.exec(ctx, "BEGIN IMMEDIATE") })
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
			_ = session.exec(ctx, "ROLLBACK")
		}
	}()
	current, err := readRecord(ctx, session, sqliteRecord, c.Resource)
	if err != nil {
		return guard.Record{}, err
	}
	next, changed, err := c.over(current)
	if err != nil || !changed {
		return current, err
	}
	now := time.Now()
	if err := session.exec(ctx, sqliteUpsert, c.Resource, int64(next.Token), next.Nonce, next.Holder, now.UnixMicro()); err != nil {
		return guard.Record{}, err
	}
	// With a rollback journal the commit has to wait for readers; it can be repeated.
	busy, err = untilFree(ctx, left(), raisePoll, func() error { return session.exec(ctx, "COMMIT") })
	if busy {
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
		return conn.exec(ctx, "PRAGMA busy_timeout = "+strconv.FormatInt(ms, 10))
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
