package pgguard

import (
	"context"
	"errors"
	"fmt"

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
	if g.checked.Load() {
		return nil
	}
	var version, protocol int
	if err := g.pool.QueryRow(ctx, g.sql.check).Scan(&version, &protocol); err != nil {
		return fmt.Errorf("pgguard: check the fence schema: %w", because(ctx, missing(err)))
	}
	switch {
	case protocol > neededProtocol:
		return fmt.Errorf("pgguard: %w: its protocol is %d and this package speaks %d; upgrade the module github.com/go-fencing/fencing in this program",
			ErrSchema, protocol, neededProtocol)
	case protocol < neededProtocol:
		return fmt.Errorf("pgguard: %w: its protocol is %d and this package speaks %d; upgrade the database with \"fencectl migrate up\"",
			ErrSchema, protocol, neededProtocol)
	case version < neededVersion:
		return fmt.Errorf("pgguard: %w: it is at version %d and this package needs %d; run \"fencectl migrate up\"",
			ErrSchema, version, neededVersion)
	}
	g.checked.Store(true)
	return nil
}

// missing explains an error of a call into the fence schema that says that there
// is no such schema, or that this role may not use it.
func missing(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pgErr.Code {
	case "3F000", "42883": // invalid_schema_name, undefined_function
		return fmt.Errorf("%w: it is missing in this database; run \"fencectl migrate up\": %w", ErrSchema, err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("%w: this role may not use it; grant it USAGE on the schema and EXECUTE on its functions: %w", ErrSchema, err)
	}
	return err
}
