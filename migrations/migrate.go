package migrations

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

var (
	// ErrNewer: the schema was made by a newer version of this library.
	ErrNewer = errors.New("schema newer than the library")

	// ErrProtected: tables still have triggers that need the schema.
	ErrProtected = errors.New("tables are still protected")
)

// DBTX is what the migrations run on: a *pgxpool.Pool, a *pgx.Conn, or a pgx.Tx
// whose own commit then decides.
type DBTX interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

var errNilDatabase = errors.New("the database is nil")

// isNil also finds a nil pool or connection.
func isNil(db DBTX) bool {
	v := reflect.ValueOf(db)
	return db == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Up brings the schema to [Latest], or to the version of [To], in one
// transaction: all of it or nothing. A schema that is there already is not
// touched, so that every process may call Up when it starts; the first one does
// the work and the others wait for it. ErrNewer if the schema is ahead of this
// library.
func Up(ctx context.Context, db DBTX, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if o.target < 0 {
		o.target = Latest
	}
	return o.run(ctx, db, "up", func(version int) bool { return version >= o.target }, func(tx pgx.Tx, version int) error {
		return o.apply(ctx, tx, version)
	})
}

// Down takes the schema back to the version of [To], by default to 0: then
// everything is dropped, every fence with it. ErrProtected, and nothing changed,
// while tables have triggers of [Protect]. An error that says what to do, too, while
// resources have been rebased: their earlier holders would come back.
func Down(ctx context.Context, db DBTX, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	o.target = max(o.target, 0)
	return o.run(ctx, db, "down", func(version int) bool { return version <= o.target }, func(tx pgx.Tx, version int) error {
		if o.target == 0 {
			if err := o.refuseWhileProtected(ctx, tx); err != nil {
				return err
			}
		}
		return o.revert(ctx, tx, version)
	})
}

// Version returns the version of the schema, whoever installed it: 0 if there is
// none.
func Version(ctx context.Context, db DBTX, opts ...Option) (int, error) {
	o, err := newOptions(opts)
	if err != nil {
		return 0, err
	}
	version := 0
	err = o.inTx(ctx, db, "version", func(tx pgx.Tx) error {
		version, err = o.version(ctx, tx)
		return err
	})
	return version, err
}

// run calls work unless the schema is done. The first look needs no lock and no
// more rights than any client has.
func (o options) run(ctx context.Context, db DBTX, what string, done func(version int) bool, work func(tx pgx.Tx, version int) error) error {
	return o.inTx(ctx, db, what, func(tx pgx.Tx) error {
		version, err := o.knownVersion(ctx, tx)
		if err != nil || done(version) {
			return err
		}
		return o.locked(ctx, tx, func() error {
			if version, err = o.knownVersion(ctx, tx); err != nil || done(version) {
				return err
			}
			return work(tx, version)
		})
	})
}

func (o options) knownVersion(ctx context.Context, tx pgx.Tx) (int, error) {
	version, err := o.version(ctx, tx)
	if err == nil && version > Latest {
		err = fmt.Errorf("%w: the schema has version %d, this library knows %d; upgrade the library", ErrNewer, version, Latest)
	}
	return version, err
}

// locked calls work alone in the database, under the lock timeout, which it puts
// back for a caller whose transaction goes on.
func (o options) locked(ctx context.Context, tx pgx.Tx, work func() error) error {
	var before string
	if err := queryRow(ctx, tx, &before, "SELECT current_setting('lock_timeout')"); err != nil {
		return err
	}
	if err := setLockTimeout(ctx, tx, milliseconds(o.lockTimeout)); err != nil {
		return err
	}
	// Two integers: the gates of the fences use the lock space of one bigint. The
	// wait for it teaches a session nothing new about the catalogs, and a schema
	// that was missing before would be missing still; locking a relation does.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(5070437, 1); SELECT FROM pg_catalog.pg_namespace LIMIT 1"); err != nil {
		return fmt.Errorf("waiting for another migration: %w", err)
	}
	if err := work(); err != nil {
		return err
	}
	return setLockTimeout(ctx, tx, before)
}

func (o options) apply(ctx context.Context, tx pgx.Tx, version int) error {
	steps, err := history()
	if err != nil {
		return err
	}
	for _, s := range steps[version:o.target] {
		if err := o.exec(ctx, tx, "up", s.name, s.up); err != nil {
			return err
		}
	}
	return nil
}

func (o options) revert(ctx context.Context, tx pgx.Tx, version int) error {
	steps, err := history()
	if err != nil {
		return err
	}
	for v := version; v > o.target; v-- {
		if err := o.exec(ctx, tx, "down", steps[v-1].name, steps[v-1].down); err != nil {
			return err
		}
	}
	return nil
}

// exec sends all statements of one step at once, as the tools do.
func (o options) exec(ctx context.Context, tx pgx.Tx, what, name, sql string) error {
	sql, err := inSchema(sql, o.schema)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, sql)
	return o.explain(what, name, err)
}

// explain says what to do about an error of a step, of whichever driver.
func (o options) explain(what, name string, err error) error {
	if err == nil {
		return nil
	}
	switch sqlerror.State(err) {
	case "42P06": // duplicate_schema
		return fmt.Errorf("%s: a schema of this name exists and is not a fence schema; choose another with WithSchema: %w", name, err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("%s: %w; run \"%s\" as the owner of the database", name, err, hint.Fencectl("migrate "+what, o.schema))
	}
	return fmt.Errorf("%s: %w", name, err)
}

func (o options) version(ctx context.Context, tx pgx.Tx) (int, error) {
	function := quoteIdent(o.schema) + ".version()"
	var exists bool
	if err := queryRow(ctx, tx, &exists, "SELECT to_regprocedure("+quoteLiteral(function)+") IS NOT NULL"); err != nil || !exists {
		return 0, err
	}
	var version int
	err := queryRow(ctx, tx, &version, "SELECT "+function)
	return version, err
}

func (o options) refuseWhileProtected(ctx context.Context, tx pgx.Tx) error {
	refuse := quoteLiteral(quoteIdent(o.schema) + ".refuse_write()")
	var tables []string
	// The prefixes and casts are explained in protect_up.tmpl.
	if err := queryRow(ctx, tx, &tables, `SELECT coalesce(pg_catalog.array_agg(DISTINCT coalesce(pg_catalog.pg_partition_root(tgrelid), tgrelid)::regclass::text), '{}')
		FROM pg_trigger WHERE tgfoid = to_regprocedure(`+refuse+`)::oid`); err != nil {
		return err
	}
	const shown = 10
	switch n := len(tables); {
	case n == 0:
		return nil
	case n > shown:
		tables = append(tables[:shown], fmt.Sprintf("%d more", n-shown))
	}
	return fmt.Errorf("%w: %s; take the protection off with \"%s\", or with the down SQL of Protect", ErrProtected, strings.Join(tables, ", "), hint.Fencectl("protect --down TABLE", o.schema))
}

// inTx commits what fn did, or undoes it even where ctx has ended.
func (o options) inTx(ctx context.Context, db DBTX, what string, fn func(tx pgx.Tx) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("migrations: %s of schema %q: %w", what, o.schema, err)
		}
	}()
	if isNil(db) {
		return errNilDatabase
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(cleanup) // after a commit there is nothing to undo, else err says more
	}()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// queryRow uses the simple protocol: prepared statements would fail behind a
// PgBouncer in transaction mode.
func queryRow(ctx context.Context, tx pgx.Tx, dst any, sql string) error {
	return tx.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(dst)
}

func setLockTimeout(ctx context.Context, tx pgx.Tx, value string) error {
	_, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', "+quoteLiteral(value)+", true)")
	return err
}
