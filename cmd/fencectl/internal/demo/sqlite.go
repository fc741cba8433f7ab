package demo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

// A sqliteStage is a database in a file that nobody else has.
type sqliteStage struct {
	sqliteInventory
	dir, file, says string
}

var _ stage = (*sqliteStage)(nil)

// openSQLite makes the file. why says what it is in place of.
func openSQLite(ctx context.Context, why string) (*sqliteStage, error) {
	dir, err := os.MkdirTemp("", "fencectl-demo-")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnfinished, err)
	}
	s := &sqliteStage{dir: dir, file: filepath.Join(dir, "inventory.db")}
	if err := s.build(ctx, why); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: SQLite: %w", ErrUnfinished, err), s.close(ctx))
	}
	return s, nil
}

func (s *sqliteStage) build(ctx context.Context, why string) (err error) {
	if s.db, err = plainSQLite(s.file); err != nil {
		return err
	}
	var version string
	if err := s.db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return err
	}
	s.says = "SQLite " + version + ", in a file of its own"
	if why != "" {
		s.says += " (" + why + ")"
	}
	if err := migrations.UpDB(ctx, s.db, sqlguard.SQLite); err != nil {
		return err
	}
	for _, query := range []string{
		"CREATE TABLE inventory (sku text PRIMARY KEY, stock integer NOT NULL)",
		fmt.Sprintf("INSERT INTO inventory VALUES ('%s', %d)", sku, opening),
	} {
		if _, err := s.db.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteStage) store() Store  { return SQLite }
func (s *sqliteStage) about() string { return s.says }

func (s *sqliteStage) tell(to *setup) { to.Store, to.SQLite = SQLite, s.file }

// refused: the fence is checked by a statement in the file. A refusal that has not
// come from there does not name the fence in force.
func (s *sqliteStage) refused(f *failure) bool { return f.Stale && f.Current != 0 }

func (s *sqliteStage) close(context.Context) error {
	if s.db != nil {
		_ = s.db.Close() // the file goes, whatever is in it
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("the directory %s may be left: %w", s.dir, err)
	}
	return nil
}

// sqliteConnector opens a file so that readers do not stop the writer, and a
// writer waits for another one.
func sqliteConnector(file string) (driver.Connector, error) {
	name := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(file)}).EscapedPath()}
	name.RawQuery = "_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)"
	return sqlite.NewConnector(name.String())
}

func plainSQLite(file string) (*sql.DB, error) {
	c, err := sqliteConnector(file)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// sqliteStore is what a worker has of a file: the inventory without and with a
// guard, and the guard.
func sqliteStore(file string) (*workerStore, error) {
	plain, err := plainSQLite(file)
	if err != nil {
		return nil, err
	}
	c, err := sqliteConnector(file)
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	guarded := sql.OpenDB(sqlguard.Wrap(c, sqlguard.SQLite))
	s := &workerStore{plain: sqliteInventory{plain}, guarded: sqliteInventory{guarded}, close: func() {
		_ = plain.Close() // the process ends with them
		_ = guarded.Close()
	}}
	g, err := sqlguard.New(plain, sqlguard.SQLite)
	if err != nil {
		s.close()
		return nil, err
	}
	s.guard = g
	return s, nil
}
