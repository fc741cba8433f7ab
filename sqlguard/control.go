package sqlguard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

var (
	errControl = errors.New("sqlguard: transactions are begun and ended through database/sql, not by SQL; nothing was sent")
	errHidden  = errors.New("sqlguard: what this statement runs cannot be seen, and may end the transaction; prepare statements through database/sql; nothing was sent")
	errUse     = errors.New("sqlguard: USE would lead the connection, and all who have it later, to other fences; name the database in the statement, or open another *sql.DB; nothing was sent")
	errVersion = fmt.Errorf("sqlguard: the server's version decides what it runs of this text, which has more than %d comments like /*! */, or comments within one; nothing was sent", maxVersioned)
	errQuotes  = errors.New("sqlguard: a setting of the server decides where a string with a backslash before a quote ends, and what the rest of this text is; pass strings as arguments, or send one statement without a semicolon; nothing was sent")
	errCommits = errors.New("sqlguard: MySQL commits a transaction before this statement, which would run without a fence; run it without one, on a database that is not wrapped or has WithPassThrough; nothing was sent")
)

// checkControl refuses a text of which a statement would begin or end a
// transaction behind the back of the connection, so that what follows would not be
// in the one that has entered, or is read-only. ROLLBACK TO a savepoint keeps what was
// entered before it. guarded: what follows may not be just anything.
func checkControl(d Dialect, text string, inTx, guarded bool) error {
	texts, ok := readings(d, text)
	if !ok {
		return errVersion
	}
	for _, text := range texts {
		for _, s := range sqltext.Steps(sqltext.Dialect(d), text) {
			switch {
			case s.Control == sqltext.End, s.Control == sqltext.Savepoint && !inTx: // SQLite begins a transaction there
				return fmt.Errorf("%w: %s", errControl, s.Verb)
			case s.Control == sqltext.Commits && guarded:
				return fmt.Errorf("%w: %s", errCommits, s.Verb)
			case s.Control == sqltext.Unknown && s.Verb == "" && guarded:
				return errQuotes
			}
		}
		if d == MySQL {
			if err := checkHidden(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHidden refuses what leads to a text, or to fences, that nobody sees here; also
// after the settings of SET STATEMENT ... FOR. Most texts are one statement that begins
// with another word, and may be long.
func checkHidden(text string) error {
	if !strings.Contains(text, ";") && !hides(text) {
		return nil
	}
	for _, s := range sqltext.Statements(sqltext.MySQL, text) {
		for i, w := range s.Words {
			switch {
			case i > 0 && (s.Words[0] != "set" || s.Words[i-1] != "for"):
			case w == "execute", w == "prepare":
				return fmt.Errorf("%w: %s", errHidden, strings.ToUpper(w))
			case w == "use":
				return errUse
			}
		}
	}
	return nil
}

// hides reports whether the first statement of a text may be for checkHidden.
func hides(text string) bool {
	for len(text) > 0 {
		kind, size, _ := sqltext.Next(sqltext.MySQL, text)
		if !kind.IsBlank() {
			return slices.Contains([]string{"set", "execute", "prepare", "use"}, strings.ToLower(text[:size]))
		}
		text = text[size:]
	}
	return false
}
