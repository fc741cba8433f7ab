// Package rawsql finds out what a text of SQL may do to guarded tables. It reads tokens
// and no grammar: where it cannot tell, the text counts as a write.
package rawsql
