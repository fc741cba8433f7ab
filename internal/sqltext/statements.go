package sqltext

import (
	"slices"
	"strings"
)

// A Statement is one of a text.
type Statement struct {
	Words []string // in lower case, of what is in quotes only the names of SET; "" comes first if something else does
	Last  string   // the last token, as written
}

// Statements returns those of a text. The body of a routine belongs to the one that
// creates it, up to an END before a semicolon: what comes later is taken for
// statements, although it may be more of the body.
func Statements(d Dialect, text string) (all []Statement) {
	var s Statement
	for len(text) > 0 {
		kind, size, _ := Next(d, text)
		token := text[:size]
		text = text[size:]
		switch {
		case kind.IsBlank():
			continue
		case kind == Semicolon:
			if s.Words == nil || inBody(d, s) {
				continue
			}
			all = append(all, s)
			s = Statement{}
			continue
		case kind == Word:
			s.Words = append(s.Words, strings.ToLower(token))
		case s.Words == nil:
			s.Words = []string{""}
		case (kind == Quoted || token[0] == '"') && s.Words[0] == "set": // "autocommit" is a name by a setting of MySQL
			s.Words = append(s.Words, strings.ToLower(strings.Trim(token, "`\"")))
		}
		s.Last = token
	}
	if s.Words != nil {
		all = append(all, s)
	}
	return all
}

// inBody reports whether a semicolon here only ends a statement of a routine's body.
func inBody(d Dialect, s Statement) bool {
	if s.Words[0] != "create" {
		return false
	}
	begin := slices.Index(s.Words, "begin")
	if begin < 0 || strings.EqualFold(s.Last, "end") && count(s.Words, "end") > count(s.Words, "case") { // CASE ends so, too
		return false
	}
	switch d {
	case Postgres: // elsewhere the body is a string
		return begin+1 < len(s.Words) && s.Words[begin+1] == "atomic" && routine(s.Words[:begin], "function", "procedure")
	case MySQL:
		return routine(s.Words[:begin], "trigger", "procedure", "function", "event")
	}
	return routine(s.Words[:begin], "trigger")
}

func count(words []string, word string) (n int) {
	for _, w := range words {
		if w == word {
			n++
		}
	}
	return n
}

// routine reports whether CREATE is of one of these kinds, after words such as OR
// REPLACE and TEMPORARY. A definer has its name between them.
func routine(words []string, kinds ...string) bool {
	i := slices.IndexFunc(words, func(w string) bool {
		return !slices.Contains([]string{"create", "or", "replace", "temp", "temporary", "aggregate"}, w)
	})
	if i >= 0 && words[i] == "definer" {
		i = slices.IndexFunc(words, func(w string) bool { return slices.Contains(kinds, w) })
	}
	return i >= 0 && slices.Contains(kinds, words[i])
}

// firstWord returns the first word of a text in lower case, if it begins with one.
func firstWord(d Dialect, text string) string {
	for len(text) > 0 {
		kind, size, _ := Next(d, text)
		switch {
		case kind == Word:
			return strings.ToLower(text[:size])
		case !kind.IsBlank():
			return ""
		}
		text = text[size:]
	}
	return ""
}
