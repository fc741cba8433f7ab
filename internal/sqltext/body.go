package sqltext

import "strings"

// A Body finds, token by token, the body of a routine of Postgres that is no string:
// BEGIN ATOMIC ... END. The zero Body stands before a statement.
//
// It is exact for what the server parses, so that neither a name ("create function
// begin(atomic int)") nor an END within the body ("case ... end", "select 1 as end")
// deceives it: in CREATE FUNCTION the two words come together outside of parentheses
// only there, and the END of the body alone comes right after a semicolon.
type Body struct {
	at    place
	depth int // of parentheses
	last  string
}

// A place is where the last token stood.
type place uint8

const (
	head      place = iota // CREATE OR REPLACE
	inRoutine              // after FUNCTION or PROCEDURE
	inBegin
	elsewhere
)

// Has takes the next token that is not blank, and reports whether it belongs to a body
// that began before it. The END is not reported.
func (b *Body) Has(token string) bool {
	last := b.last
	b.last = token
	is := func(word string) bool { return strings.EqualFold(token, word) }
	switch {
	case b.at == inBegin:
		if is("end") && (last == ";" || strings.EqualFold(last, "atomic")) {
			b.at = elsewhere
			return false
		}
		return true
	case token == ";":
		*b = Body{}
	case b.at == head && !is("create") && !is("or") && !is("replace"):
		b.at = elsewhere
		if is("function") || is("procedure") {
			b.at = inRoutine
		}
	case token == "(":
		b.depth++
	case token == ")":
		b.depth--
	case b.at == inRoutine && b.depth == 0 && is("atomic") && strings.EqualFold(last, "begin"):
		b.at = inBegin
	}
	return false
}
