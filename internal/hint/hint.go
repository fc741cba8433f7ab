// Package hint writes what an error tells its reader to do.
package hint

import (
	"regexp"
	"strings"
)

var plain = regexp.MustCompile(`^[\w.]+$`)

// Fencectl returns a command line of fencectl for a fence schema, fit for a POSIX
// shell.
func Fencectl(command, schema string) string {
	if schema == "fencing" { // the default
		return "fencectl " + command
	}
	return "fencectl " + command + " --schema " + Word(schema)
}

// Word writes a text so that a POSIX shell reads exactly it.
func Word(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
