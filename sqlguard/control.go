package sqlguard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

var (
	errControl = errors.New("sqlguard: transactions are begun and ended through database/sql, not by SQL; nothing was sent")
	errHidden  = errors.New("sqlguard: what this statement runs cannot be seen, and may end the transaction; prepare statements through database/sql; nothing was sent")
	errUse     = errors.New("sqlguard: USE would lead the connection, and all who have it later, to other fences; name the database in the statement, or open another *sql.DB; nothing was sent")
	errVersion = fmt.Errorf("sqlguard: the server's version decides what it runs of this text, which has more than %d comments like /*! */, or comments within one; nothing was sent", maxVersioned)
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
// after the settings of SET STATEMENT ... FOR.
func checkHidden(text string) error {
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
