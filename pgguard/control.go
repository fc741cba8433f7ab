package pgguard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// errControl: a statement would end the transaction that carries the fence, and
// what follows it would be unguarded: "commit" and an update after it in one
// batch write without the gate, and so does a procedure that commits inside.
var errControl = errors.New("it would end the fenced transaction early; nothing was sent")

// checkInTx refuses sql if one of its statements would end the transaction in
// which it runs.
func checkInTx(sql string) error {
	var err error
	scanSQL(sql, func(words [3]string) bool {
		if endsTx(words) {
			err = fmt.Errorf("pgguard: statement %s: %w; return from the function, or use Commit and Rollback", strings.ToUpper(words[0]), errControl)
		}
		return err == nil
	})
	return err
}

// checkAlone refuses sql unless it is one statement that can be the second of an
// implicit transaction and leaves it as it is.
//
// CALL and DO are refused as well: in an implicit transaction of the extended
// protocol their body may commit, which gives up the gate, and go on.
func checkAlone(sql string) error {
	var err error
	count := 0
	scanSQL(sql, func(words [3]string) bool {
		count++
		if endsTx(words) || isOneOf(words[0], "begin", "start", "call", "do") {
			err = fmt.Errorf("pgguard: statement %s: outside InTx %w; use InTx", strings.ToUpper(words[0]), errControl)
		} else if count > 1 {
			err = errors.New("pgguard: several statements in one string; use InTx or SendBatch; nothing was sent")
		}
		return err == nil
	})
	if err == nil && count == 0 {
		err = errors.New("pgguard: the statement is empty; nothing was sent")
	}
	return err
}

func endsTx(words [3]string) bool {
	switch {
	case isOneOf(words[0], "commit", "end", "abort"):
		return true
	case isOneOf(words[0], "rollback"):
		next := words[1]
		if isOneOf(next, "work", "transaction") {
			next = words[2]
		}
		return !isOneOf(next, "to") // ROLLBACK TO SAVEPOINT keeps what was entered before the savepoint
	case isOneOf(words[0], "prepare"):
		return isOneOf(words[1], "transaction")
	}
	return false
}

func isOneOf(word string, keywords ...string) bool {
	for _, k := range keywords {
		if strings.EqualFold(word, k) {
			return true
		}
	}
	return false
}

// scanSQL calls visit with the first three words of every statement of sql, until
// visit returns false. Of a statement that begins with anything but a word, such
// as "(select ...)", the words are empty.
func scanSQL(sql string, visit func(words [3]string) bool) {
	var words [3]string
	n := 0 // tokens of this statement
	for len(sql) > 0 {
		kind, size, _ := sqltext.Next(sqltext.Postgres, sql)
		switch {
		case kind.IsBlank():
		case kind == sqltext.Semicolon:
			if n > 0 && !visit(words) {
				return
			}
			words, n = [3]string{}, 0
		default:
			if kind == sqltext.Word && n < len(words) && (n == 0 || words[n-1] != "") {
				words[n] = sql[:size]
			}
			n++
		}
		sql = sql[size:]
	}
	if n > 0 {
		visit(words)
	}
}
