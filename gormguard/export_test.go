package gormguard

import "github.com/go-fencing/fencing/sqlguard"

// Writes reports whether a text of SQL counts as a write to a guarded table.
func Writes(sql string, d sqlguard.Dialect, table string) bool {
	set := newTableSet()
	set.add(table, "fence_token")
	return classify(sql, d, set).table != ""
}
