package sqlguard

import (
	"reflect"
	"strings"

	"github.com/go-fencing/fencing/internal/sqlerror"
)

// Error numbers of MySQL and MariaDB.
const (
	mysqlRecordChanged     = 1020 // ER_CHECKREAD, with innodb_snapshot_isolation
	mysqlShutdown          = 1053 // ER_SERVER_SHUTDOWN
	mysqlDuplicate         = 1062 // ER_DUP_ENTRY
	mysqlTableAccessDenied = 1142 // ER_TABLEACCESS_DENIED_ERROR
	mysqlNoSuchTable       = 1146 // ER_NO_SUCH_TABLE
	mysqlUnknownVariable   = 1193 // ER_UNKNOWN_SYSTEM_VARIABLE
	mysqlLockWaitTimeout   = 1205 // ER_LOCK_WAIT_TIMEOUT
	mysqlLockTableFull     = 1206 // ER_LOCK_TABLE_FULL
	mysqlDeadlock          = 1213 // ER_LOCK_DEADLOCK
	mysqlInterrupted       = 1317 // ER_QUERY_INTERRUPTED
	mysqlInTransaction     = 1568 // ER_CANT_CHANGE_TX_CHARACTERISTICS
	mysqlReadOnly          = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	mysqlKilled            = 1927 // ER_CONNECTION_KILLED
)

// Result codes of SQLite: the primary ones, which are the low byte.
const (
	sqliteError     = 1
	sqliteBusy      = 5
	sqliteLocked    = 6
	sqliteReadOnly  = 8
	sqliteInterrupt = 9

	sqliteBusySnapshot = sqliteBusy | 2<<8
)

// isBusy reports whether another connection has the lock that SQLite needs, or
// has written since the transaction began to read.
func isBusy(err error) bool {
	code := sqlerror.SQLiteCode(err) & 0xff
	return code == sqliteBusy || code == sqliteLocked
}

// isReadOnly reports whether a write was refused for being in a read-only
// transaction.
func isReadOnly(err error) bool {
	return sqlerror.State(err) == "25006" || sqlerror.MySQLNumber(err) == mysqlReadOnly || sqlerror.SQLiteCode(err)&0xff == sqliteReadOnly
}

func noSuchTable(err error) bool {
	return sqlerror.SQLiteCode(err)&0xff == sqliteError && strings.Contains(err.Error(), "no such table: "+fenceTable)
}

// noTransaction reports whether SQLite had nothing to commit.
func noTransaction(err error) bool {
	return sqlerror.SQLiteCode(err)&0xff == sqliteError && strings.Contains(err.Error(), "no transaction is active")
}

// answered reports whether err is the server's own word on a statement. A fatal
// error of Postgres and one of class 08 (connection exception) are not: poolers send
// them in the server's name when they have lost the server, and a panic may come
// after the commit.
func answered(err error) bool {
	if state := sqlerror.State(err); state != "" {
		severity := severityOf(err)
		return (severity == "ERROR" || severity == "") && !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P0") && state != "40003"
	}
	if number := sqlerror.MySQLNumber(err); number != 0 {
		return (number < 2000 || number > 2999) && number < 9000 && number != mysqlShutdown && number != mysqlKilled
	}
	return commitRolledBack(err) || sqlerror.SQLiteCode(err) != 0
}

// commitRolledBack reports whether Postgres has answered a COMMIT by a rollback,
// which it does after an error that the caller has not minded. The drivers have only
// texts for that.
func commitRolledBack(err error) bool {
	for e := range sqlerror.Chain(err) {
		text := e.Error()
		if text == "commit unexpectedly resulted in rollback" || // pgx.ErrTxCommitRollback
			strings.EqualFold(text, "pq: could not complete operation in a failed transaction") { // pq.ErrInFailedTransaction, whose C was a capital
			return true
		}
	}
	return false
}

// severityOf returns the severity of an error of Postgres, in English if the driver
// has that, or "" if it has none.
func severityOf(err error) string {
	for e := range sqlerror.Chain(err) {
		if _, ok := e.(interface{ SQLState() string }); !ok {
			continue
		}
		for _, name := range []string{"SeverityUnlocalized", "Severity"} {
			if f := sqlerror.Field(e, name); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
				return f.String()
			}
		}
	}
	return ""
}
