package sqlguard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

var (
	errControl = errors.New("sqlguard: transactions are begun and ended through database/sql, not by SQL; nothing was sent")
	errCommits = errors.New("sqlguard: MySQL commits a transaction before this statement, which would run without a fence; run it without one, on a database that is not wrapped or has WithPassThrough; nothing was sent")
	errHidden  = errors.New("sqlguard: what this statement runs cannot be seen, and may end the transaction; prepare statements through database/sql; nothing was sent")
	errUse     = errors.New("sqlguard: USE would lead the connection, and all who have it later, to other fences; name the database in the statement, or open another *sql.DB; nothing was sent")
	errVersion = fmt.Errorf("sqlguard: the server's version decides what it runs of this text, which has more than %d comments like /*! */, or comments within one; nothing was sent", maxVersioned)
)

// checkControl refuses a text of which a statement would begin or end a
// transaction behind the back of the connection, so that what follows would not be
// in the one that has entered.
func checkControl(d Dialect, text string, inTx, fenced bool) error {
	all, ok := statements(d, text)
	if !ok {
		return errVersion
	}
	for _, words := range all {
		first, second := words[0], ""
		if len(words) > 1 {
			second = words[1]
		}
		switch {
		case controls(d, words, inTx):
			return fmt.Errorf("%w: %s", errControl, strings.ToUpper(first))
		case d == MySQL && (first == "execute" || first == "prepare"):
			return fmt.Errorf("%w: %s", errHidden, strings.ToUpper(first))
		case d == MySQL && first == "use":
			return errUse
		case d == MySQL && fenced && commitsImplicitly(first, second):
			return fmt.Errorf("%w: %s", errCommits, strings.ToUpper(first+" "+second))
		}
	}
	return nil
}

func controls(d Dialect, words []string, inTx bool) bool {
	at := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "begin", "start", "commit", "end", "abort", "xa":
		return words[0] != "start" || at(1) == "transaction"
	case "rollback":
		next := at(1)
		if next == "work" || next == "transaction" {
			next = at(2)
		}
		return next != "to" // ROLLBACK TO a savepoint keeps what was entered before it
	case "until": // the end of REPEAT, which MariaDB runs outside of a procedure too; that of the others is END
		return d == MySQL
	case "prepare":
		return d == Postgres && at(1) == "transaction"
	case "savepoint":
		return !inTx // SQLite begins a transaction there
	case "set":
		return slices.Contains(words, "autocommit")
	}
	return false
}

// committing are the statements of "Statements That Cause an Implicit Commit" in
// the manuals of MySQL 8.4 and MariaDB 11.
var committing = strings.Fields(`alter analyze backup cache change check clone create drop flush grant import install
	load lock optimize purge rename repair reset restart revoke shutdown stop start truncate uninstall unlock upgrade`)

func commitsImplicitly(first, second string) bool {
	switch {
	case (first == "create" || first == "drop") && second == "temporary":
		return false
	case first == "load":
		return second == "index"
	case first == "set":
		return second == "password" || second == "default" // role
	}
	return slices.Contains(committing, first)
}

// writing are words without which no statement writes to a table, unless it calls a
// function that does.
var writing = strings.Fields("insert update delete merge replace into call do load truncate returning")

// plainRead reports whether a text certainly reads only, as far as a text can tell.
// Of the others a read-only transaction shows it.
func plainRead(d Dialect, text string) bool {
	all, ok := statements(d, text)
	if !ok {
		return false
	}
	for _, words := range all {
		switch words[0] {
		case "select", "values", "table", "with", "show", "explain", "describe", "desc", "pragma":
		default:
			return false
		}
		if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(writing, w) }) {
			return false
		}
	}
	return true
}

// statements returns the words of each statement of a text in lower case, what is
// in quotes left out, apart from the names of SET. A statement that begins with
// anything but a word begins with "" here. If the text has several readings it is
// those of all of them; ok is false if they cannot be told.
func statements(d Dialect, text string) (all [][]string, ok bool) {
	texts, ok := readings(d, text)
	for _, text := range texts {
		all = append(all, statementsOf(d, text)...)
	}
	return all, ok
}

func statementsOf(d Dialect, text string) (all [][]string) {
	var words []string
	for len(text) > 0 {
		kind, size, _ := sqltext.Next(sqltext.Dialect(d), text)
		switch {
		case kind == sqltext.Semicolon:
			if words != nil {
				all = append(all, words)
			}
			words = nil
		case kind == sqltext.Word:
			words = append(words, strings.ToLower(text[:size]))
		case kind == sqltext.Quoted && words != nil && words[0] == "set":
			words = append(words, strings.ToLower(strings.Trim(text[:size], "`")))
		case !kind.IsBlank() && words == nil:
			words = []string{""}
		}
		text = text[size:]
	}
	if words != nil {
		all = append(all, words)
	}
	return all
}
