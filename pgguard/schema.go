package pgguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrSchema: the database has no fence schema, or one that this version of the
// package cannot work with. The error says what to do.
var ErrSchema = errors.New("fence schema does not fit")

const (
	neededVersion  = 3 // the last migration that this package relies on
	neededProtocol = 1
)

// ready checks the schema until it was found fit once.
func (g *Guard) ready(ctx context.Context) error {
	if g.pool == nil {
		return errors.New("pgguard: the guard has no pool; make it with New")
	}
	return g.readyOn(ctx, g.pool)
}

// readyOn is ready on a connection that the caller has.
func (g *Guard) readyOn(ctx context.Context, conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) error {
	if g.checked.Load() {
		return nil
	}
	var version, protocol int
	if err := conn.QueryRow(ctx, g.sql.check).Scan(&version, &protocol); err != nil {
		return fmt.Errorf("pgguard: check the fence schema: %w", because(ctx, g.sql.missing(err)))
	}
	switch {
	case protocol > neededProtocol:
		return fmt.Errorf("pgguard: %w: its protocol is %d and this package speaks %d; upgrade the module github.com/go-fencing/fencing in this program",
			ErrSchema, protocol, neededProtocol)
	case protocol < neededProtocol:
		return fmt.Errorf("pgguard: %w: its protocol is %d and this package speaks %d; upgrade the database with \"%s\"",
			ErrSchema, protocol, neededProtocol, g.sql.migrate)
	case version < neededVersion:
		return fmt.Errorf("pgguard: %w: it is at version %d and this package needs %d; run \"%s\"",
			ErrSchema, version, neededVersion, g.sql.migrate)
	}
	g.checked.Store(true)
	return nil
}

// missing explains an error of a call into the fence schema that says that there
// is no such schema, or that this role may not use it, or not on this server.
func (t *texts) missing(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pgErr.Code {
	case "3F000", "42883": // invalid_schema_name, undefined_function
		return fmt.Errorf("%w: it is missing in this database; run \"%s\": %w", ErrSchema, t.migrate, err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("%w: this role may not use it; grant it USAGE on the schema and EXECUTE on its functions: %w", ErrSchema, err)
	case "25006": // read_only_sql_transaction
		return fmt.Errorf("the server is a standby, or the session is read-only; connect to the primary: %w", err)
	}
	return err
}

// notEntered explains the failure of a batch that was to enter first, with the
// statement sql. pgx may prepare all statements before it sends any, so the error
// can be about one of the caller's: that is left as it is.
func (t *texts) notEntered(sql string, err error) error {
	if failed, ok := errors.AsType[pgx.ErrPreprocessingBatch](err); ok && failed.SQL() != sql {
		return err
	}
	return t.missing(err)
}
