package migrations

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// ProtectFor is [Protect] for a dialect: "postgres", "mysql" (MariaDB too) or
// "sqlite", or a sqlguard.Dialect. MySQL and SQLite get the version column alone:
// a trigger there cannot know which fences its transaction has entered, so
// Trigger and Resource are refused, as is NoColumn, which would leave nothing.
//
// In MySQL and SQLite the names are taken as they are written, without folding; a
// part that is not of letters, digits, $ and _ is put in `...` or "...". The SQL
// of each direction is one statement, and fails where the column is there
// already, or is not there.
func ProtectFor[D ~string](dialect D, table string, o ProtectOptions) (up, down string, err error) {
	if err := validateDialect(string(dialect)); err != nil {
		return "", "", fmt.Errorf("migrations: protect %q: %w", table, err)
	}
	if string(dialect) == dialectPostgres {
		return Protect(table, o)
	}
	up, down, err = protectColumn(string(dialect), table, o)
	if err != nil {
		return "", "", fmt.Errorf("migrations: protect %q in %s: %w", table, dialect, err)
	}
	return up, down, nil
}

func protectColumn(dialect, table string, o ProtectOptions) (up, down string, err error) {
	switch {
	case o.Trigger || o.Resource != "":
		return "", "", errors.New("a trigger cannot know there which fences its transaction has entered, only Postgres tells it; leave out Trigger and Resource, and write through a guard")
	case o.NoColumn:
		return "", "", errors.New("the version column is all the protection that there is")
	case o.Schema != "":
		return "", "", errors.New("there is no schema; the table of the fences is in the database of the connection")
	case o.LockTimeout != 0:
		return "", "", errors.New("there is no lock timeout for one statement; set it in the session")
	}
	column := o.Column
	if column == "" {
		column = "fence_token"
	}
	name, err := quoteTableFor(dialect, table)
	if err != nil {
		return "", "", err
	}
	if column, err = quoteFor(dialect, column); err != nil {
		return "", "", fmt.Errorf("column: %w", err)
	}
	return "ALTER TABLE " + name + " ADD COLUMN " + column + " bigint NOT NULL DEFAULT 0;\n",
		"ALTER TABLE " + name + " DROP COLUMN " + column + ";\n", nil
}

// quoteTableFor reads table or database.table, each part bare or in quotes.
func quoteTableFor(dialect, table string) (string, error) {
	var parts []string
	for rest := table; ; {
		part, after, err := namePart(rest)
		if err != nil {
			return "", err
		}
		quoted, err := quoteFor(dialect, part)
		if err != nil {
			return "", err
		}
		parts = append(parts, quoted)
		var more bool
		if rest, more = strings.CutPrefix(after, "."); !more {
			break
		}
	}
	if len(parts) > 2 {
		return "", errors.New("the name has more parts than database.table")
	}
	return strings.Join(parts, "."), nil
}

// namePart returns the first part of a name and what follows it, which is nothing
// or begins with a dot.
func namePart(s string) (part, rest string, err error) {
	if s != "" && (s[0] == '`' || s[0] == '"') {
		quote := s[:1]
		for rest = s[1:]; ; rest = rest[1:] {
			before, after, found := strings.Cut(rest, quote)
			if !found {
				return "", "", fmt.Errorf("%s ends nowhere", s)
			}
			part += before
			if rest = after; !strings.HasPrefix(rest, quote) {
				break
			}
			part += quote // doubled
		}
	} else {
		n := 0
		for n < len(s) && sqltext.InWord(s[n]) {
			n++
		}
		part, rest = s[:n], s[n:]
	}
	if rest != "" && rest[0] != '.' {
		return "", "", fmt.Errorf("unexpected %q after the name; a name that is not of letters, digits, $ and _ needs quotes", rest[:1])
	}
	return part, rest, nil
}

// quoteFor quotes a name. MySQL keeps 64 characters of it.
func quoteFor(dialect, name string) (string, error) {
	if err := validateName(name); err != nil {
		return "", err
	}
	quote := `"`
	if dialect == dialectMySQL {
		quote = "`"
	}
	return quote + strings.ReplaceAll(name, quote, quote+quote) + quote, nil
}
