package sqlguard

import (
	"errors"
	"iter"
	"reflect"
	"strings"
)

// This file reads the errors of drivers without importing the drivers: whoever
// uses one database must not have to build the drivers of the others. Where a
// driver has a method for the code, that is used. go-sql-driver/mysql has none,
// only the exported field Number, and neither driver of Postgres has a method for
// DETAIL; those fields are read by reflection. They are under the drivers'
// promise of compatibility, as their error texts are not (that of MySQL's has
// changed: "Error 1205: ..." became "Error 1205 (HY000): ...").

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
	mysqlInTransaction     = 1568 // ER_CANT_CHANGE_TX_CHARACTERISTICS
	mysqlReadOnly          = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	mysqlKilled            = 1927 // ER_CONNECTION_KILLED
)

// Result codes of SQLite: the primary ones, which are the low byte.
const (
	sqliteError    = 1
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteReadOnly = 8

	sqliteBusySnapshot = sqliteBusy | 2<<8
)

// chain yields err and every error that it wraps.
func chain(err error) iter.Seq[error] {
	return func(yield func(error) bool) { walk(err, yield) }
}

func walk(err error, yield func(error) bool) bool {
	if err == nil {
		return true
	}
	if !yield(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if !walk(err, yield) {
				return false
			}
		}
	}
	return true
}

// sqlState returns the SQLSTATE of an error of pgx or lib/pq, or "".
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// serverDetail returns the DETAIL of an error of Postgres.
func serverDetail(err error) string {
	for e := range chain(err) {
		if _, ok := e.(interface{ SQLState() string }); ok {
			if f := field(e, "Detail"); f.IsValid() && f.Kind() == reflect.String {
				return f.String()
			}
		}
	}
	return ""
}

// mysqlNumber returns the number of an error of go-sql-driver/mysql, or 0.
func mysqlNumber(err error) int {
	for e := range chain(err) {
		if f := field(e, "Number"); f.IsValid() && f.Kind() == reflect.Uint16 && typeName(e) == "MySQLError" {
			return int(f.Uint())
		}
	}
	return 0
}

// sqliteCode returns the result code of an error of SQLite, or 0. modernc.org/sqlite
// has the method Code, mattn/go-sqlite3 the field ExtendedCode, and ncruces/go-sqlite3 a
// method of that name, if the error is not the code itself.
func sqliteCode(err error) int {
	for e := range chain(err) {
		if coded, ok := e.(interface{ Code() int }); ok {
			return coded.Code()
		}
		f, own := field(e, "ExtendedCode"), reflect.ValueOf(e)
		if m := own.MethodByName("ExtendedCode"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
			f = m.Call(nil)[0]
		} else if own.Kind() == reflect.Uint16 {
			f = own
		}
		switch {
		case !f.IsValid():
		case f.CanInt():
			return int(f.Int())
		case f.CanUint():
			return int(f.Uint())
		}
	}
	return 0
}

// serverOf returns which kind of server, and hence dialect, an error comes from; ""
// if it may be any.
func serverOf(err error) (server string, d Dialect) {
	switch {
	case sqlState(err) != "":
		return "PostgreSQL", Postgres
	case mysqlNumber(err) != 0:
		return "MySQL or MariaDB", MySQL
	}
	for e := range chain(err) {
		if sqliteCode(e) != 0 && strings.Contains(packageOf(e), "sqlite") { // others have a method Code too
			return "SQLite", SQLite
		}
	}
	return "", ""
}

// isBusy reports whether another connection has the lock that SQLite needs, or
// has written since the transaction began to read.
func isBusy(err error) bool {
	code := sqliteCode(err) & 0xff
	return code == sqliteBusy || code == sqliteLocked
}

// isReadOnly reports whether a write was refused for being in a read-only
// transaction.
func isReadOnly(err error) bool {
	return sqlState(err) == "25006" || mysqlNumber(err) == mysqlReadOnly || sqliteCode(err)&0xff == sqliteReadOnly
}

func noSuchTable(err error) bool {
	return sqliteCode(err)&0xff == sqliteError && strings.Contains(err.Error(), "no such table: "+fenceTable)
}

// noTransaction reports whether SQLite had nothing to commit.
func noTransaction(err error) bool {
	return sqliteCode(err)&0xff == sqliteError && strings.Contains(err.Error(), "no transaction is active")
}

// answered reports whether err is the server's own word on a statement. A fatal
// error of Postgres and one of class 08 (connection exception) are not: poolers send
// them in the server's name when they have lost the server, and a panic may come
// after the commit.
func answered(err error) bool {
	if state := sqlState(err); state != "" {
		severity := severityOf(err)
		return (severity == "ERROR" || severity == "") && !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P0") && state != "40003"
	}
	if number := mysqlNumber(err); number != 0 {
		return (number < 2000 || number > 2999) && number < 9000 && number != mysqlShutdown && number != mysqlKilled
	}
	return commitRolledBack(err) || sqliteCode(err) != 0
}

// commitRolledBack reports whether Postgres has answered a COMMIT by a rollback,
// which it does after an error that the caller has not minded. The drivers have only
// texts for that.
func commitRolledBack(err error) bool {
	for e := range chain(err) {
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
	for e := range chain(err) {
		if _, ok := e.(interface{ SQLState() string }); !ok {
			continue
		}
		for _, name := range []string{"SeverityUnlocalized", "Severity"} {
			if f := field(e, name); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
				return f.String()
			}
		}
	}
	return ""
}

func field(err error, name string) reflect.Value {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}
