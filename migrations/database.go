package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-fencing/fencing/internal/sqlerror"
)

// The functions of this file do through database/sql, with any driver, what Up,
// Down and Version do through pgx. The dialect is "postgres", "mysql" (MariaDB
// too) or "sqlite", or a sqlguard.Dialect. An option that the dialect does not
// have is refused, and so is a database of sqlguard.Wrap by UpDB and DownDB.

// UpDB brings the schema to its latest version, or to that of [To]. A schema that
// is there already is not touched, so that every process may call UpDB when it
// starts. In Postgres and SQLite it is all of it or nothing; MySQL commits each
// statement, so there a call that failed is repeated.
func UpDB[D ~string](ctx context.Context, db *sql.DB, dialect D, opts ...Option) error {
	m, err := newMigration(string(dialect), opts)
	if err != nil {
		return err
	}
	if m.target < 0 {
		m.target = len(m.steps)
	}
	return m.run(ctx, db, "up", func(version int) bool { return version >= m.target }, func(conn *sql.Conn, version int) error {
		for v := version; v < m.target; v++ {
			if err := m.exec(ctx, conn, "up", m.steps[v].name, m.steps[v].up); err != nil {
				return err
			}
		}
		return nil
	})
}

// DownDB takes the schema back to the version of [To], by default to 0: then
// everything is dropped, every fence with it.
func DownDB[D ~string](ctx context.Context, db *sql.DB, dialect D, opts ...Option) error {
	m, err := newMigration(string(dialect), opts)
	if err != nil {
		return err
	}
	m.target = max(m.target, 0)
	return m.run(ctx, db, "down", func(version int) bool { return version <= m.target }, func(conn *sql.Conn, version int) error {
		if m.target == 0 && m.dialect == dialectPostgres {
			if err := m.refuseWhileProtectedDB(ctx, conn); err != nil {
				return err
			}
		}
		for v := version; v > m.target; v-- {
			if err := m.exec(ctx, conn, "down", m.steps[v-1].name, m.steps[v-1].down); err != nil {
				return err
			}
		}
		return nil
	})
}

// VersionDB returns the version of the schema, whoever installed it: 0 if there
// is none.
func VersionDB[D ~string](ctx context.Context, db *sql.DB, dialect D, opts ...Option) (int, error) {
	m, err := newMigration(string(dialect), opts)
	if err != nil {
		return 0, err
	}
	if db == nil {
		return 0, m.failed("version", errNilDatabase)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, m.failed("version", err)
	}
	defer func() { _ = conn.Close() }()
	version, err := m.version(ctx, conn)
	return version, m.failed("version", err)
}

// A migration is what one call works with.
type migration struct {
	options
	dialect string
	steps   []step
}

func newMigration(dialect string, opts []Option) (migration, error) {
	if err := validateDialect(dialect); err != nil {
		return migration{}, fmt.Errorf("migrations: %w", err)
	}
	o, err := newOptions(opts)
	if err != nil {
		return migration{}, err
	}
	steps, err := stepsFor(dialect)
	switch {
	case err != nil:
		return migration{}, err
	case dialect != dialectPostgres && o.schema != defaultSchema:
		return migration{}, fmt.Errorf("migrations: %s has no schema %q; the table is in the database of the connection", dialect, o.schema)
	case o.target > len(steps):
		return migration{}, fmt.Errorf("migrations: there is no version %d for %s, this library knows 0 to %d", o.target, dialect, len(steps))
	}
	return migration{options: o, dialect: dialect, steps: steps}, nil
}

func (m migration) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if mistaken := sqlerror.MistakenDialect(err, m.dialect); mistaken != nil {
		err = mistaken
	}
	return fmt.Errorf("migrations: %s of the fence schema in %s: %w", what, m.dialect, err)
}

// run calls work alone in the database, on one connection, unless the schema is done,
// which it sees without a lock. SQLite has no queue for its lock: there an attempt,
// which does all or nothing, is repeated until the lock timeout is over.
func (m migration) run(ctx context.Context, db *sql.DB, what string, done func(version int) bool, work func(conn *sql.Conn, version int) error) error {
	if db == nil {
		return m.failed(what, errNilDatabase)
	}
	err := m.attempt(ctx, db, done, work)
	for start := time.Now(); m.dialect == dialectSQLite && isBusy(err); err = m.attempt(ctx, db, done, work) {
		if time.Since(start) > m.lockTimeout {
			err = fmt.Errorf("waiting for others took longer than %v: %w", m.lockTimeout, err)
			break
		}
		select {
		case <-ctx.Done():
			return m.failed(what, fmt.Errorf("%w: %w", context.Cause(ctx), err))
		case <-time.After(busyPoll):
		}
	}
	return m.failed(what, err)
}

const busyPoll = 10 * time.Millisecond

// isBusy reports whether another connection has a lock of SQLite, by the one thing that
// the errors of its drivers have in common.
func isBusy(err error) bool { return err != nil && strings.Contains(err.Error(), " is locked") }

func (m migration) attempt(ctx context.Context, db *sql.DB, done func(version int) bool, work func(conn *sql.Conn, version int) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Raw(refuseWrapped); err != nil {
		return err
	}
	version, err := m.knownVersion(ctx, conn)
	if err != nil || done(version) {
		return err
	}
	return m.locked(ctx, conn, func() error {
		if version, err = m.knownVersion(ctx, conn); err != nil || done(version) {
			return err
		}
		return work(conn, version)
	})
}

// refuseWrapped refuses a connection of sqlguard.Wrap, which lets no DDL through.
func refuseWrapped(driverConn any) error {
	if _, wrapped := driverConn.(interface{ WrappedBySQLGuard() }); wrapped {
		return errors.New("the database is wrapped by sqlguard, which refuses the statements of a migration; run it on one that is opened without sqlguard.Wrap; nothing was sent")
	}
	return nil
}

func (m migration) knownVersion(ctx context.Context, conn *sql.Conn) (int, error) {
	version, err := m.version(ctx, conn)
	if err == nil && version > len(m.steps) {
		err = fmt.Errorf("%w: the schema has version %d, this library knows %d; upgrade the library", ErrNewer, version, len(m.steps))
	}
	return version, err
}

// locked calls work under a lock that other migrations want too. Where statements
// of the schema can be in a transaction, that is the lock and undoes what failed.
func (m migration) locked(ctx context.Context, conn *sql.Conn, work func() error) (err error) {
	begin, end, undo := []string{"BEGIN"}, "COMMIT", "ROLLBACK"
	switch m.dialect {
	case dialectSQLite:
		begin = []string{"BEGIN IMMEDIATE"}
	case dialectPostgres:
		begin = append(begin, "SELECT set_config('lock_timeout', '"+milliseconds(m.lockTimeout)+"', true)", "SELECT pg_advisory_xact_lock(5070437, 1)",
			"SELECT FROM pg_catalog.pg_namespace LIMIT 1") // why: see options.locked
	case dialectMySQL:
		seconds := strconv.FormatInt(int64((m.lockTimeout+time.Second-1)/time.Second), 10)
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('fencing_migration', "+seconds+")").Scan(&got); err != nil {
			return err
		}
		if got.Int64 != 1 {
			return fmt.Errorf("waiting for another migration took longer than %v", m.lockTimeout)
		}
		begin, end, undo = nil, "DO RELEASE_LOCK('fencing_migration')", "DO RELEASE_LOCK('fencing_migration')"
	}
	defer func() {
		if err != nil {
			cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_, undoErr := conn.ExecContext(cleanup, undo) // err says more
			if undoErr != nil && m.dialect == dialectMySQL {
				_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the lock is that of the session, so this ends it
			}
		}
	}()
	for _, sql := range begin {
		if _, err := conn.ExecContext(ctx, sql); err != nil {
			return err
		}
	}
	if err := work(); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, end)
	return err
}

func (m migration) exec(ctx context.Context, conn *sql.Conn, what, name, text string) error {
	text, err := inSchema(text, m.schema)
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, text)
	return m.explain(what, name, err)
}

// versionSQL asks the schema itself. Up to now a table is all there is of it in
// MySQL and SQLite.
var versionSQL = map[string]string{
	dialectMySQL:  "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'fencing_fence'",
	dialectSQLite: "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'fencing_fence'",
}

func (m migration) version(ctx context.Context, conn *sql.Conn) (version int, err error) {
	query := versionSQL[m.dialect]
	if m.dialect == dialectPostgres {
		function := quoteIdent(m.schema) + ".version()"
		var exists bool
		err := conn.QueryRowContext(ctx, "SELECT to_regprocedure("+quoteLiteral(function)+") IS NOT NULL").Scan(&exists)
		if err != nil || !exists {
			return 0, err
		}
		query = "SELECT " + function
	}
	err = conn.QueryRowContext(ctx, query).Scan(&version)
	return version, err
}

func (m migration) refuseWhileProtectedDB(ctx context.Context, conn *sql.Conn) error {
	var table string
	err := conn.QueryRowContext(ctx, "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgfoid = to_regprocedure("+
		quoteLiteral(quoteIdent(m.schema)+".refuse_write()")+")::oid LIMIT 1").Scan(&table)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s is; take the protection off with the down SQL of Protect", ErrProtected, table)
}
