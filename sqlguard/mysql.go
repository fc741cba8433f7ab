package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

// mysqlEngine locks the row of the fence: a raise for itself, a transaction that
// enters it shared with others. InnoDB grants these locks in the order of the
// requests, so a stream of transactions does not starve a raise.
type mysqlEngine struct {
	noVariable atomic.Bool // the server is MySQL, which has no @@in_transaction
}

// raised_at is the time of UTC, whatever the time zone of the session is.
const mysqlRecord = "SELECT token, nonce, holder, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', raised_at) FROM " + fenceTable + " WHERE resource = "

const (
	mysqlHeld = "SELECT token, nonce FROM " + fenceTable + " WHERE resource = "
	// The lock is that of the outer SELECT alone.
	mysqlHeldAndSeen = "SELECT token, nonce, (SELECT COUNT(*) FROM " + fenceTable + " seen WHERE seen.resource = %s AND seen.token = %d AND seen.nonce = %s) FROM " + fenceTable + " WHERE resource = "

	mysqlShare  = " LOCK IN SHARE MODE" // FOR SHARE is the newer name, which MariaDB does not know
	mysqlInsert = "INSERT INTO " + fenceTable + " (token, nonce, holder, raised_at, resource) VALUES (?, ?, ?, UTC_TIMESTAMP(6), ?)"
	mysqlUpdate = "UPDATE " + fenceTable + " SET token = ?, nonce = ?, holder = ?, raised_at = UTC_TIMESTAMP(6) WHERE resource = ?"
)

// enter reads each fence by a statement of its own, with the lock: a plain read
// sees the snapshot at REPEATABLE READ, and one statement for several rows may
// lock the whole table. The locking read takes no snapshot, so what the
// transaction reads afterwards is not older than its fences.
//
// The statement has no condition but the key: MariaDB takes longer to parse and
// optimize two more than to find the row. SELECT ... INTO @variable would be a
// little faster, but proxies (RDS Proxy, ProxySQL) keep a connection that has set a
// variable for one client alone.
//
// Where the transaction may have a snapshot already, the same statement reads the
// fence once more, without the lock and hence in that snapshot: if it was raised
// since, its holder would read what was there before, and overwrite the rest.
func (*mysqlEngine) enter(ctx context.Context, tx session, _ *settings, held []guard.Fence, e entering) error {
	return compare(held, func(f guard.Fence) (guard.Record, error) {
		var current struct { // one piece: it is read into, and so on the heap
			guard.Record
			seen int64
		}
		current.Fence.Resource, current.seen = f.Resource, 1
		query, dest := mysqlHeld, []any{(*int64)(&current.Fence.Token), &current.Fence.Nonce}
		if !e.first {
			query = fmt.Sprintf(mysqlHeldAndSeen, bytesMySQL(f.Resource), f.Token, bytesMySQL(f.Nonce))
			dest = append(dest, &current.seen)
		}
		found, err := tx.row(ctx, query+bytesMySQL(f.Resource)+mysqlShare, nil, dest...)
		if err == nil && found && current.seen == 0 && current.Enter(f) == nil {
			err = fmt.Errorf("%q: %w", f.Resource, errOldSnapshot)
		}
		if err != nil || found && current.Enter(f) == nil {
			return current.Record, err
		}
		return readMySQL(ctx, tx, f.Resource, mysqlShare) // for whoever has to explain the refusal
	})
}

// bytesMySQL writes bytes as a number into a statement: for one with an argument
// go-sql-driver needs a second round trip.
func bytesMySQL(s string) string {
	b := make([]byte, 0, 2+2*guard.MaxResource)
	return string(hex.AppendEncode(append(b, "0x"...), []byte(s)))
}

func readMySQL(ctx context.Context, tx session, resource, lock string) (guard.Record, error) {
	return readRecord(ctx, tx, resource, mysqlRecord+bytesMySQL(resource)+lock)
}

func (*mysqlEngine) raise(ctx context.Context, db *sql.DB, s *settings, c claim) (guard.Record, error) {
	start := time.Now()
	for {
		record, attempt, err := raiseMySQL(ctx, db, s, c)
		switch number := sqlerror.MySQLNumber(err); {
		case err == nil:
			return record, nil
		case errors.Is(err, errRaiseUnknown):
			return guard.Record{}, err
		case (number == mysqlDuplicate || number == mysqlDeadlock) && time.Since(start) < s.lockTimeout && ctx.Err() == nil:
			// Another raise inserted the row first: it is there to be locked now.
		case number == mysqlLockWaitTimeout, number == mysqlDeadlock, attempt.ended:
			blocked := &BlockedError{Resource: c.Resource, Waited: time.Since(start), cause: err}
			if found := attempt.ended && lookMySQL(ctx, db, attempt.id, blocked); !found && ctx.Err() != nil {
				return guard.Record{}, err
			}
			return guard.Record{}, blocked
		default:
			return guard.Record{}, err
		}
	}
}

// An attempt is one to raise.
type attempt struct {
	id    int64 // of its connection: the server knows it still when the client has given up
	ended bool  // its time was over before the server answered, and its connection is closed
}

// raiseMySQL tries to raise once.
func raiseMySQL(ctx context.Context, db *sql.DB, s *settings, c claim) (record guard.Record, a attempt, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return record, a, err
	}
	defer func() { _ = conn.Close() }()
	var restore func()
	if restore, a.id, err = limitLockWait(ctx, sqlSession{conn}, s.lockTimeout); err != nil {
		return record, a, err
	}
	defer restore()
	// The bound is a context's and not innodb_lock_wait_timeout: that one counts in
	// seconds, and after it nothing is left to tell who was in the way.
	ctx, cancel := context.WithTimeoutCause(ctx, s.lockTimeout, fmt.Errorf("the lock timeout of %v is over", s.lockTimeout))
	defer cancel()
	defer func() {
		if err == nil || ctx.Err() == nil {
			return
		}
		// After an answer the connection is well, and will be somebody else's.
		if a.ended = sqlerror.MySQLNumber(err) == 0; a.ended {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // lookMySQL will kill it
		}
		err = because(ctx, err)
	}()
	// READ COMMITTED locks no gap where the row is missing, so that the first raises
	// of two resources do not meet.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return record, a, err
	}
	defer func() { _ = tx.Rollback() }() // after the commit there is nothing to undo
	session := sqlSession{tx}
	current, err := readMySQL(ctx, session, c.Resource, " FOR UPDATE")
	if err != nil {
		return record, a, err
	}
	next, changed, err := c.over(current)
	if err != nil || !changed {
		return current, a, err
	}
	write := mysqlUpdate
	if current.Fence.Token == 0 {
		write = mysqlInsert
	}
	if _, err := session.exec(ctx, write, int64(next.Token), next.Nonce, next.Holder, c.Resource); err != nil {
		return record, a, err
	}
	return guard.Record{Fence: next}, a, commitRaise(tx)
}

// limitLockWait bounds how long the server goes on waiting for a lock after the
// client has given up: as long as it does, nobody can enter. The session variable
// outlives the transaction, hence restore.
func limitLockWait(ctx context.Context, conn session, timeout time.Duration) (restore func(), id int64, err error) {
	var before int64
	if _, err := conn.row(ctx, "SELECT CONNECTION_ID(), @@SESSION.innodb_lock_wait_timeout", nil, &id, &before); err != nil {
		return nil, id, err
	}
	limit := int64(timeout/time.Second) + 1
	if before <= limit {
		return func() {}, id, nil
	}
	set := func(ctx context.Context, seconds int64) error {
		_, err := conn.exec(ctx, "SET SESSION innodb_lock_wait_timeout = "+strconv.FormatInt(seconds, 10))
		return err
	}
	if err := set(ctx, limit); err != nil {
		return nil, id, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
		defer cancel()
		_ = set(ctx, before) // it fails only with the connection
	}, id, nil
}

// lookMySQL finds out whom the connection with this id waits for, and then ends
// it: its socket is closed, which the server does not notice while it waits for a
// lock, and a waiting raise keeps everyone from entering.
func lookMySQL(ctx context.Context, db *sql.DB, id int64, b *BlockedError) (found bool) {
	if id == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBound)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	session := sqlSession{conn}
	// MariaDB has the first of the tables, MySQL 8 the second. Both need the
	// privilege PROCESS, without which the error is poorer.
	for _, table := range []string{mariaWaits, mysqlWaits} {
		var connection, age, namesakes int64
		var client, state string
		found, err = session.row(ctx, lookMySQLSQL+table+lookMySQLOrder, []any{id}, &connection, &client, &state, &age, &namesakes)
		if err != nil {
			continue
		}
		// In MariaDB all transactions that have not written share the number 0. One
		// of several may be any of them, and an innocent one must not be named.
		if found && namesakes == 1 {
			b.Connection, b.Client, b.State = connection, client, state
			b.Since = time.Now().Add(-time.Duration(age) * time.Second).Truncate(time.Second)
		}
		break
	}
	_, _ = session.exec(ctx, "KILL "+strconv.FormatInt(id, 10)) // "no such thread" is well
	return found
}

const (
	lookMySQLSQL = `SELECT t.trx_mysql_thread_id, CONCAT(COALESCE(p.user, ''), '@', COALESCE(p.host, '')), COALESCE(p.command, ''), TIMESTAMPDIFF(SECOND, t.trx_started, NOW()),
    (SELECT COUNT(*) FROM information_schema.INNODB_TRX n WHERE n.trx_id = t.trx_id)
  FROM information_schema.INNODB_TRX t LEFT JOIN information_schema.PROCESSLIST p ON p.id = t.trx_mysql_thread_id WHERE t.trx_id IN (`
	mariaWaits = `SELECT w.blocking_trx_id FROM information_schema.INNODB_LOCK_WAITS w
    JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id WHERE r.trx_mysql_thread_id = ?)`
	mysqlWaits = `SELECT w.BLOCKING_ENGINE_TRANSACTION_ID FROM performance_schema.data_lock_waits w
    JOIN information_schema.INNODB_TRX r ON r.trx_id = w.REQUESTING_ENGINE_TRANSACTION_ID WHERE r.trx_mysql_thread_id = ?)`
	lookMySQLOrder = ` ORDER BY t.trx_started LIMIT 1`
)

func (*mysqlEngine) begins(o sql.TxOptions) (sql.TxOptions, string) { return o, "" }

func (*mysqlEngine) readOnly() (on, off string) { return "", "" }

// open asks, in a round trip of its own: after an error with which the server has
// rolled back the transaction, and the caller has gone on, the rest was committed
// statement by statement, and COMMIT succeeds.
func (e *mysqlEngine) open(ctx context.Context, tx session) (bool, error) {
	if !e.noVariable.Load() {
		var in, autocommit int64
		_, err := tx.row(ctx, "SELECT @@in_transaction, @@autocommit", nil, &in, &autocommit)
		if sqlerror.MySQLNumber(err) != mysqlUnknownVariable {
			return in == 1, unknowable(autocommit, err)
		}
	}
	return e.openInMySQL(ctx, tx)
}

// openInMySQL: MySQL does not tell whether there is a transaction, but refuses in one
// what is for the next. That cannot ask about autocommit too, so the first connection
// answers for the others.
func (e *mysqlEngine) openInMySQL(ctx context.Context, tx session) (bool, error) {
	if !e.noVariable.Load() {
		var autocommit int64
		_, err := tx.row(ctx, "SELECT @@autocommit", nil, &autocommit)
		if err := unknowable(autocommit, err); err != nil {
			return false, err
		}
		e.noVariable.Store(true)
	}
	_, err := tx.exec(ctx, "SET TRANSACTION READ WRITE")
	if sqlerror.MySQLNumber(err) == mysqlInTransaction {
		return true, nil
	}
	return false, err
}

// unknowable returns why nobody knows whether a transaction is the one that was begun.
func unknowable(autocommit int64, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("close all rows before: %w", err)
	case autocommit == 0:
		return errNoAutocommit
	}
	return nil
}

var errNoAutocommit = errors.New("autocommit is 0 on this connection, so that MySQL begins another transaction by itself when it has rolled back one; " +
	"leave it at 1 (the data source name sets it, or SET), where a transaction is one just the same")

// rolledBack: what follows a deadlock would be committed statement by statement,
// and also what follows a timeout if innodb_rollback_on_timeout is set. MariaDB
// answers NOWAIT with a timeout too.
func (e *mysqlEngine) rolledBack(ctx context.Context, tx session, err error) bool {
	switch number := sqlerror.MySQLNumber(err); {
	case number == mysqlDeadlock, number == mysqlLockTableFull, number == mysqlRecordChanged:
		return true
	case number == mysqlLockWaitTimeout, err == nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
		defer cancel()
		open, err := e.open(ctx, tx)
		return err != nil || !open
	}
	return false
}

func (*mysqlEngine) check(ctx context.Context, tx session, _ *settings) error {
	var engine string
	found, err := tx.row(ctx, "SELECT COALESCE(ENGINE, 'no engine') FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '"+fenceTable+"'", nil, &engine)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%w: there is no table %s in the database of the connection; install it with package migrations", ErrSchema, fenceTable)
	case engine != "InnoDB":
		return fmt.Errorf("%w: the table %s is of %s and must be of InnoDB, which has transactions", ErrSchema, fenceTable, engine)
	}
	return nil
}
