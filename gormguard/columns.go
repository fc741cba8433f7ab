package gormguard

import (
	"fmt"
	"strings"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/sqlguard"
)

// unquoted turns a table as SQL writes it into the name that GORM's migrator takes.
var unquoted = strings.NewReplacer(`"`, "", "`", "", "[", "", "]", "")

// mustExist refuses a table that is not there. It says nothing where it cannot look:
// a database may be there to build SQL only.
func mustExist(db *gorm.DB, table string) error {
	conn, err := db.DB()
	if err != nil || conn == nil || db.DryRun {
		return nil
	}
	// As SQL sees it, which folds case or does not; the migrator takes quotes of other
	// databases too.
	rows, err := conn.QueryContext(db.Statement.Context, "SELECT 1 FROM "+table+" WHERE 1 = 0")
	if err == nil {
		return rows.Close()
	}
	if down := conn.PingContext(db.Statement.Context); down != nil {
		return fmt.Errorf("gormguard: WithTables: table %s cannot be looked for, because the database does not answer: %w", table, down)
	}
	if db.Migrator().HasTable(unquoted.Replace(table)) {
		return nil
	}
	return fmt.Errorf("gormguard: WithTables: table %s cannot be read, and a name that is misspelt guards nothing; create it before db.Use: %w", table, err)
}

// checkColumn refuses a guarded table whose version column is missing, may be
// NULL, or is no integer, and says what mends it.
func (p *Plugin) checkColumn(db *gorm.DB, table, column string) error {
	types, err := db.Migrator().ColumnTypes(unquoted.Replace(table))
	if err != nil {
		return fmt.Errorf("gormguard: read the columns of table %s: %w", table, err)
	}
	why := "is missing"
	for _, t := range types {
		if !strings.EqualFold(t.Name(), column) {
			continue
		}
		why = ""
		if nullable, ok := t.Nullable(); ok && nullable {
			why = "may be NULL, and such a row could never be written"
		}
		kind := strings.ToLower(t.DatabaseTypeName())
		if full, ok := t.ColumnType(); ok && kind == "" {
			kind = strings.ToLower(full)
		}
		if !strings.HasPrefix(kind, "bigint") && !strings.HasPrefix(kind, "int8") && !(p.dialect == sqlguard.SQLite && strings.HasPrefix(kind, "int")) {
			why = fmt.Sprintf("is a %s and not a 64-bit integer", kind)
		}
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("gormguard: column %s of table %s %s; run this migration first:\n%s", column, table, why, p.remedy(table, column, why))
}

// remedy returns the SQL that makes the version column.
func (p *Plugin) remedy(table, column, why string) string {
	if p.dialect == sqlguard.Postgres {
		if why == "is missing" {
			return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %q bigint NOT NULL DEFAULT 0;", table, column)
		}
		return fmt.Sprintf("UPDATE %[1]s SET %[2]q = 0 WHERE %[2]q IS NULL;\nALTER TABLE %[1]s ALTER COLUMN %[2]q TYPE bigint, ALTER COLUMN %[2]q SET DEFAULT 0, ALTER COLUMN %[2]q SET NOT NULL;", table, column)
	}
	if p.dialect == sqlguard.MySQL && why != "is missing" {
		return fmt.Sprintf("UPDATE %[1]s SET `%[2]s` = 0 WHERE `%[2]s` IS NULL;\nALTER TABLE %[1]s MODIFY `%[2]s` BIGINT NOT NULL DEFAULT 0;", table, column)
	}
	if why != "is missing" {
		return fmt.Sprintf("ALTER TABLE %[1]s RENAME COLUMN %[2]s TO %[2]s_old;\nALTER TABLE %[1]s ADD COLUMN %[2]s BIGINT NOT NULL DEFAULT 0;", table, column)
	}
	return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s BIGINT NOT NULL DEFAULT 0;", table, column)
}
