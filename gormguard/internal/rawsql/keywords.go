package rawsql

import "strings"

func is(w string, words ...string) bool {
	for _, k := range words {
		if len(w) == len(k) && strings.EqualFold(w, k) {
			return true
		}
	}
	return false
}

// containsWord looks for a word that is not a part of a longer one. Only letters make it
// longer: a digit may be the end of /*!50000, and what is not ASCII a space.
func containsWord(s, w string) bool {
	for from := 0; ; {
		i := strings.Index(s[from:], w)
		if i < 0 {
			return false
		}
		from += i
		if !letterAt(s, from-1) && !letterAt(s, from+len(w)) {
			return true
		}
		from++
	}
}

func letterAt(s string, i int) bool {
	return i >= 0 && i < len(s) && (s[i] == '_' || 'a' <= s[i] && s[i] <= 'z' || 'A' <= s[i] && s[i] <= 'Z')
}

type keywordClass uint8

const (
	kwNone keywordClass = iota
	kwInsert
	kwReplace
	kwUpdate
	kwDelete
	kwMerge
	kwDestroys
	kwTable
	kwInto
	kwFrom
	kwOn  // a table follows
	kwOff // anything but a table follows
)

// keyword looks up a word of up to nine bytes.
func keyword(w string) keywordClass {
	var upper [9]byte
	for i := range len(w) {
		c := w[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	switch string(upper[:len(w)]) {
	case "INSERT":
		return kwInsert
	case "REPLACE":
		return kwReplace
	case "UPDATE":
		return kwUpdate
	case "DELETE":
		return kwDelete
	case "MERGE":
		return kwMerge
	case "TRUNCATE", "RENAME", "EXCHANGE", "COPY", "LOAD", "DROP":
		return kwDestroys
	case "TABLE", "TABLES", "COLUMN", "PARTITION":
		return kwTable
	case "INTO":
		return kwInto
	case "FROM":
		return kwFrom
	case "JOIN", "USING", "ONLY", "LOCK", "ALTER":
		return kwOn
	case "SET", "WHERE", "VALUES", "VALUE", "RETURNING", "ON", "SELECT", "HAVING", "BY", "LIMIT", "DUPLICATE", "CONFLICT", "WHEN", "DEFAULT":
		return kwOff
	default:
		return kwNone
	}
}
