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

// Ambiguous reports whether two servers of the dialect, or two settings of one, could
// read a token differently, and so what follows it. Next reads it as the package says.
func Ambiguous(d Dialect, before, token string) bool {
	switch c := token[0]; {
	case strings.HasPrefix(token, "/*"):
		body := token[2:] // some versions of MySQL run it, or nest what is in it
		return d == MySQL && (strings.Contains(body, "/*") || strings.HasPrefix(body, "!") || strings.HasPrefix(body, "M!"))
	case c|0x20 == 'u' && d == Postgres:
		return strings.HasPrefix(token[1:], "&") // UESCAPE may follow: what it names is not to be seen
	case c != '\'' && c != '"' || d == SQLite || c == '"' && d == Postgres:
		return false
	}
	return mayEscape(d, token) && !(d == Postgres && token == `'\'` && endsWith(before, "ESCAPE"))
}

// mayEscape reports whether a backslash in a string stands where it would escape a
// quote if the server, or in MySQL the character set, is such that it escapes, and
// where it would not otherwise. A run of them escapes by pairs.
func mayEscape(d Dialect, token string) bool {
	for i := 1; i < len(token); i++ {
		if token[i] != '\\' {
			continue
		}
		n := span(token[i:], func(c byte) bool { return c == '\\' })
		// It may be the second byte of a letter.
		half := d == MySQL && token[i-1] >= 0x80
		i += n
		if i < len(token) && token[i] == token[0] && (n%2 == 1 || half) {
			return true
		}
	}
	return false
}

func endsWith(s, word string) bool {
	s = strings.TrimRight(s, " ")
	n := len(s) - len(word)
	return n > 0 && !InWord(s[n-1]) && strings.EqualFold(s[n:], word)
}
