package sqltext

import (
	"slices"
	"strings"
)

// A Control is what a statement does to the transaction that it runs in.
type Control uint8

// The controls.
const (
	Savepoint  Control = iota + 1
	Release            // of a savepoint
	RollbackTo         // a savepoint
	End                // of the transaction, or the beginning of another one
	Commits            // MySQL commits before the statement
	Unknown            // the text does not tell: CALL may commit, for example
)

// A Step is a statement that does something to its transaction, or may do.
type Step struct {
	Control Control
	Verb    string // its first words, in capitals
	Name    string // of the savepoint, without quotes
}

// Steps returns those of a text, in their order.
func Steps(d Dialect, text string) (steps []Step) {
	several := strings.Contains(strings.TrimRight(text, "; \t\r\n\v\f"), ";") // at the end it parts nothing, however the rest is read
	versioned := d == MySQL && (strings.Contains(text, "/*!") || strings.Contains(text, "/*M!"))
	if !several && !versioned && passive(d, firstWord(d, text)) {
		return nil
	}
	for _, s := range Statements(d, text) {
		verb := s.Words[0]
		switch c := control(d, s.Words); c {
		case 0:
		case Commits:
			if len(s.Words) > 1 {
				verb += " " + s.Words[1]
			}
			fallthrough
		default:
			steps = append(steps, Step{c, strings.ToUpper(verb), strings.Trim(s.Last, "\"'`[]")})
		}
	}
	if d != SQLite && (several || versioned) && ambiguous(d, text) {
		steps = append(steps, Step{Control: Unknown})
	}
	return steps
}

func ambiguous(d Dialect, text string) bool {
	for at := 0; at < len(text); {
		_, size, _ := Next(d, text[at:])
		if Ambiguous(d, text[:at], text[at:at+size]) {
			return true
		}
		at += size
	}
	return false
}

func control(d Dialect, words []string) Control {
	at := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch first := words[0]; first {
	case "begin", "commit", "end", "abort":
		return End
	case "start":
		if at(1) == "transaction" {
			return End
		}
	case "rollback":
		next := at(1)
		if next == "work" || next == "transaction" {
			next = at(2)
		}
		if next == "to" {
			return RollbackTo
		}
		return End
	case "savepoint":
		return Savepoint
	case "release":
		return Release
	case "prepare":
		if d == Postgres && at(1) == "transaction" {
			return End
		}
	case "xa", "repeat": // of the compound statements only the inside of REPEAT would look harmless
		if d == MySQL {
			return End
		}
	case "set":
		if slices.Contains(words, "autocommit") {
			return End
		}
		if d == MySQL && at(1) == "statement" {
			return controlOfRest(d, words[2:])
		}
	}
	switch {
	case d != MySQL:
		return 0
	case commitsImplicitly(words):
		return Commits
	case passive(d, words[0]) || words[0] == "set":
		return 0
	}
	return Unknown
}

// controlOfRest is that of the statement in MariaDB's SET STATEMENT ... FOR. In
// the settings there may be another FOR.
func controlOfRest(d Dialect, words []string) Control {
	for i, w := range words {
		if w == "for" && i+1 < len(words) {
			if c := control(d, words[i+1:]); c != 0 {
				return c
			}
		}
	}
	return 0
}

// passive reports whether statements that begin so leave their transaction as it is.
func passive(d Dialect, first string) bool {
	switch first {
	case "select", "insert", "update", "delete", "replace", "with", "values", "table", "show", "explain":
		return true
	case "", "describe", "desc", "do", "deallocate", "prepare", "use": // "": a bracket, before a query
		return d == MySQL
	}
	return false
}

// committing are the statements of "Statements That Cause an Implicit Commit" in
// the manuals of MySQL 8.4 and MariaDB 11.
var committing = strings.Fields(`alter analyze backup cache change check clone create drop flush grant import install
	load lock optimize purge rename repair reset restart revoke shutdown stop start truncate uninstall unlock upgrade`)

func commitsImplicitly(words []string) bool {
	at := func(i int) string { return words[min(i, len(words)-1)] }
	switch words[0] {
	case "create", "drop": // of what is temporary only tables leave the transaction alone
		i := 1
		if at(1) == "or" && at(2) == "replace" {
			i = 3
		}
		return at(i) != "temporary" || at(i+1) != "table" && at(i+1) != "tables"
	case "analyze": // that of MariaDB runs a statement and shows its plan
		return slices.Contains([]string{"table", "tables", "local", "no_write_to_binlog"}, at(1))
	case "load":
		return at(1) == "index"
	case "set": // anywhere in its list
		for i, w := range words[1:] {
			if w == "password" || w == "role" && words[i] == "default" {
				return true
			}
		}
		return false
	}
	return slices.Contains(committing, words[0])
}
