// Package sqlerror reads the errors of the drivers of database/sql without importing
// the drivers: whoever uses one database must not have to build the drivers of the
// others. Where a driver has a method for the code, that is used. go-sql-driver/mysql
// has none, only the exported field Number, and neither driver of Postgres has a method
// for DETAIL; those fields are read by reflection. They are under the drivers' promise of
// compatibility, as their error texts are not (that of MySQL's has changed: "Error 1205:
// ..." became "Error 1205 (HY000): ...").
package sqlerror

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
)

// Chain yields err and every error that it wraps.
func Chain(err error) iter.Seq[error] {
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

// State returns the SQLSTATE of an error of pgx or lib/pq, or "".
func State(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// Detail returns the DETAIL of an error of Postgres.
func Detail(err error) string {
	for e := range Chain(err) {
		if _, ok := e.(interface{ SQLState() string }); ok {
			if f := Field(e, "Detail"); f.IsValid() && f.Kind() == reflect.String {
				return f.String()
			}
		}
	}
	return ""
}

// MySQLNumber returns the number of an error of go-sql-driver/mysql, or 0.
func MySQLNumber(err error) int {
	for e := range Chain(err) {
		if f := Field(e, "Number"); f.IsValid() && f.Kind() == reflect.Uint16 && typeName(e) == "MySQLError" {
			return int(f.Uint())
		}
	}
	return 0
}

// SQLiteCode returns the result code of an error of SQLite, or 0. modernc.org/sqlite
// has the method Code, mattn/go-sqlite3 the field ExtendedCode, and ncruces/go-sqlite3 a
// method of that name, if the error is not the code itself.
func SQLiteCode(err error) int {
	for e := range Chain(err) {
		if coded, ok := e.(interface{ Code() int }); ok {
			return coded.Code()
		}
		f, own := Field(e, "ExtendedCode"), reflect.ValueOf(e)
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

// MistakenDialect explains an error that comes from a server of another dialect than
// that of its caller, or is nil.
func MistakenDialect(err error, dialect string) error {
	server, its := serverOf(err)
	if server == "" || its == dialect {
		return nil
	}
	return fmt.Errorf("the server is %s, the dialect says %s: %w", server, dialect, err)
}

// serverOf returns which kind of server, and hence dialect, an error comes from; ""
// if it may be any.
func serverOf(err error) (server, dialect string) {
	switch {
	case State(err) != "":
		return "PostgreSQL", "postgres"
	case MySQLNumber(err) != 0:
		return "MySQL or MariaDB", "mysql"
	}
	for e := range Chain(err) {
		if SQLiteCode(e) != 0 && strings.Contains(PackageOf(e), "sqlite") { // others have a method Code too
			return "SQLite", "sqlite"
		}
	}
	return "", ""
}

// Field returns a field of a driver's error; not valid if there is none.
func Field(err error, name string) reflect.Value {
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

// PackageOf returns the package of a type, which may be behind a pointer.
func PackageOf(v any) string {
	t := reflect.TypeOf(v)
	if t == nil {
		return ""
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}
