package sqltext

import "strings"

// The functions of this file return the length of what s begins with, or 0 if
// that has no end.

func startsLineComment(d Dialect, s string) bool {
	switch {
	case s[0] == '#':
		return d == MySQL
	case !strings.HasPrefix(s, "--"):
		return false
	}
	return d != MySQL || len(s) == 2 || s[2] <= ' ' // 1--1 is a sum there
}

// lineLen returns the length of a comment to the end of the line, or of the text.
func lineLen(d Dialect, s string) int {
	ends := "\n"
	if d == Postgres {
		ends = "\r\n"
	}
	if i := strings.IndexAny(s, ends); i >= 0 {
		return i
	}
	return len(s)
}

// commentLen knows that comments nest in Postgres, and that MySQL runs what is in
// /*! ... */ and MariaDB what is in /*M! ... */: there only the opening is one.
func commentLen(d Dialect, s string) int {
	if d == MySQL {
		for _, opening := range []string{"/*!", "/*M!"} {
			if strings.HasPrefix(s, opening) {
				return len(opening) + span(s[len(opening):], IsDigit)
			}
		}
	}
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch two := s[i : i+2]; {
		case two == "/*" && (depth == 0 || d == Postgres):
			depth++
			i++
		case two == "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// quotedLen is for a token whose quote opens at start. A doubled quote stands for
// itself.
func quotedLen(s string, start int, escapes bool) int {
	q := s[start]
	for i := start + 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] != q:
		case i+1 < len(s) && s[i+1] == q:
			i++
		default:
			return i + 1
		}
	}
	return 0
}

// escapedLen is for E'...' of Postgres, which may go on in a '...' on the next
// line, with escapes there too.
func escapedLen(s string) int {
	n := quotedLen(s, 1, true)
	for i := n; n > 0 && i < len(s); {
		switch {
		case isSpace(s[i]):
			i++
		case strings.HasPrefix(s[i:], "--"):
			i += lineLen(Postgres, s[i:])
		case s[i] == '\'':
			n = quotedLen(s, i, true)
			i = n
		default:
			return n
		}
	}
	return n
}
