package sqlguard

import (
	"slices"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// Without a fence a statement reads as it is, or runs in a read-only transaction. The
// functions of this file find out, as far as a text can tell, which of the two, and
// whether it would make that transaction one that writes.

// writing are the words with which a part of a query writes, as in WITH. INSERT, MERGE and
// REPLACE come with INTO there, and are functions without.
var writing = strings.Fields("update delete into")

// plainRead reports whether a text certainly reads only, unless it calls a function
// that does not. Of the others a read-only transaction shows it.
func plainRead(d Dialect, text string) bool {
	texts, ok := readings(d, text)
	for _, text := range texts {
		for _, s := range sqltext.Statements(sqltext.Dialect(d), text) {
			if !reads(s.Words) {
				return false
			}
		}
	}
	return ok && keepsReadOnly(d, text)
}

func reads(words []string) bool {
	has := func(some ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(some, w) })
	}
	switch words[0] {
	case "show", "pragma":
		return true
	case "explain", "describe", "desc":
		return !has("analyze", "analyse") // which runs the statement
	case "select", "values", "table", "with":
		return !has(writing...)
	}
	return false
}

// keepsReadOnly reports whether a text leaves a read-only transaction what it is. In
// MySQL that cannot be changed; what ends the transaction is for checkControl.
func keepsReadOnly(d Dialect, text string) bool {
	keeps := func([]string) bool { return true }
	switch d {
	case Postgres:
		// With NULL in place of a value it is RESET.
		if lower := strings.ToLower(text); strings.Contains(lower, "set_config") && strings.Contains(lower, readOnlySetting) {
			return false
		}
		keeps = settingKeeps
	case SQLite:
		keeps = pragmaKeeps
	}
	for _, tokens := range tokensOf(d, text) {
		if !keeps(tokens) {
			return false
		}
	}
	return true
}

// tokensOf returns the tokens of each statement of a text, in lower case.
func tokensOf(d Dialect, text string) (all [][]string) {
	var statement []string
	for len(text) > 0 {
		kind, size, _ := sqltext.Next(sqltext.Dialect(d), text)
		switch {
		case kind == sqltext.Semicolon:
			all = append(all, statement)
			statement = nil
		case !kind.IsBlank():
			statement = append(statement, strings.ToLower(text[:size]))
		}
		text = text[size:]
	}
	return append(all, statement)
}

const readOnlySetting = "transaction_read_only"

// settingKeeps is for SET [SESSION | LOCAL] name and for RESET name: a transaction of
// Postgres that has not read yet may be made one that writes, and up to version 15
// RESET and DEFAULT do it at any time. So may DO, in a text of its own.
func settingKeeps(tokens []string) bool {
	if len(tokens) < 2 {
		return true
	}
	verb, rest := tokens[0], tokens[1:]
	switch {
	case verb == "do":
		return false
	case verb != "set" && verb != "reset":
		return true
	case len(rest) > 1 && (rest[0] == "session" || rest[0] == "local"):
		rest = rest[1:]
	}
	switch name := strings.Trim(rest[0], `"`); {
	case name == "transaction":
		return !slices.Contains(rest, "write")
	case strings.HasPrefix(name, "u&"): // in a notation of its own
		return false
	default:
		return name != readOnlySetting
	}
}

// pragmaReads are the pragmas of SQLite that only read, whatever their argument.
var pragmaReads = strings.Fields(`collation_list compile_options data_version database_list foreign_key_check foreign_key_list
	freelist_count function_list index_info index_list index_xinfo integrity_check module_list page_count pragma_list quick_check
	table_info table_list table_xinfo`)

// pragmaSettings are those that only read without an argument.
var pragmaSettings = strings.Fields(`application_id auto_vacuum busy_timeout cache_size encoding foreign_keys journal_mode
	journal_size_limit locking_mode max_page_count mmap_size page_size query_only read_uncommitted recursive_triggers
	schema_version secure_delete synchronous temp_store user_version wal_autocheckpoint`)

// pragmaKeeps is for PRAGMA [schema.]name, [= value] or [(value)], which has to read
// only: others change the database, or the connection, of which query_only is what
// makes it read-only. EXPLAIN [QUERY PLAN] runs some of them. A name in quotes is not
// looked up.
func pragmaKeeps(tokens []string) bool {
	for len(tokens) > 0 && slices.Contains([]string{"explain", "query", "plan"}, tokens[0]) {
		tokens = tokens[1:]
	}
	if len(tokens) == 0 || tokens[0] != "pragma" {
		return true
	}
	tokens = tokens[1:]
	if len(tokens) > 2 && tokens[1] == "." {
		tokens = tokens[2:]
	}
	if len(tokens) == 0 {
		return false
	}
	return slices.Contains(pragmaReads, tokens[0]) || len(tokens) == 1 && slices.Contains(pragmaSettings, tokens[0])
}
