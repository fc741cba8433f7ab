package sqlguard

import (
	"slices"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// pragmaReads are the pragmas of SQLite that only read, whatever their argument.
var pragmaReads = strings.Fields(`collation_list compile_options data_version database_list foreign_key_check foreign_key_list
	freelist_count function_list index_info index_list index_xinfo integrity_check module_list page_count pragma_list quick_check
	table_info table_list table_xinfo`)

// pragmaSettings are those that only read without an argument.
var pragmaSettings = strings.Fields(`application_id auto_vacuum busy_timeout cache_size encoding foreign_keys journal_mode
	journal_size_limit locking_mode max_page_count mmap_size page_size query_only read_uncommitted recursive_triggers
	schema_version secure_delete synchronous temp_store user_version wal_autocheckpoint`)

// pragmasRead reports whether every PRAGMA of a text only reads. The others change
// the database, or the connection: query_only is what makes it read-only.
func pragmasRead(text string) bool {
	var statement []string // its tokens
	for len(text) > 0 {
		kind, size, _ := sqltext.Next(sqltext.SQLite, text)
		switch {
		case kind == sqltext.Semicolon:
			if !pragmaReadsOnly(statement) {
				return false
			}
			statement = nil
		case !kind.IsBlank():
			statement = append(statement, strings.ToLower(text[:size]))
		}
		text = text[size:]
	}
	return pragmaReadsOnly(statement)
}

// pragmaReadsOnly is for PRAGMA [schema.]name, [= value] or [(value)]. A name in
// quotes is not looked up.
func pragmaReadsOnly(tokens []string) bool {
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
