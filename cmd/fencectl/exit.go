package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/demo"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/migrations"
)

const (
	exitOK          = 0
	exitAnswer      = 1
	exitUsage       = 2
	exitServer      = 3
	exitInterrupted = 130
)

var (
	// errAnswer: the command has run and said on stdout what is not as it should be.
	errAnswer = errors.New("bad answer")

	// errUntrusted: the command has run, and said on stdout why that shows nothing.
	errUntrusted = errors.New("not to be trusted")

	// errServer: a server that was reached did not do what it was asked for.
	errServer = errors.New("server failed")

	// errInput: the server was asked, and what it said rules out what it was given.
	errInput = errors.New("bad input")
)

// badUsage is an error of errInput in the words of the format.
func badUsage(format string, args ...any) error {
	return fmt.Errorf("%w%w", &silent{errInput}, fmt.Errorf(format, args...))
}

// exitCode gives every error that nothing else is known of the code of bad usage:
// cobra's own have no type.
func exitCode(ctx context.Context, err error) int {
	e, own := errors.AsType[*exited](err)
	switch {
	case err == nil:
		return exitOK
	case own && e.error == nil: // the command's own, and its answer to an interrupt too
		return e.code
	case ctx.Err() != nil, errors.Is(err, syscall.EPIPE): // whoever reads stdout has gone
		return exitInterrupted
	case own:
		return e.code
	case errors.Is(err, errAnswer), errors.Is(err, migrations.ErrProtected), errors.Is(err, migrations.ErrNewer):
		return exitAnswer
	case errors.Is(err, target.ErrInvalid), errors.Is(err, errUntrusted):
		return exitUsage
	case unwritten(err), errors.Is(err, target.ErrUnreachable), errors.Is(err, errServer), errors.Is(err, demo.ErrUnfinished), errors.Is(err, localserver.ErrNotInstalled):
		return exitServer
	}
	return exitUsage
}

// unwritten reports that stdout did not take the result, on a full disk for
// instance. What was asked for may have been done by then.
func unwritten(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Path == os.Stdout.Name()
}

// refused sorts an error of a server: it dislikes either what it was given or who
// gave it.
func refused(err error) error {
	if errors.Is(err, errInput) {
		return err
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return fmt.Errorf("%w%w", &silent{errServer}, err)
	}
	if pgErr.Hint != "" && !strings.Contains(err.Error(), pgErr.Hint) {
		err = fmt.Errorf("%w; %s", err, pgErr.Hint)
	}
	if badInput(pgErr.Code) {
		return err
	}
	return fmt.Errorf("%w%w", &silent{errServer}, err)
}

// badInput reports whether the SQLSTATE speaks of names, expressions and values.
// The rights of a role, of the same class, are no such thing.
func badInput(code string) bool {
	const insufficientPrivilege = "42501"
	return code != insufficientPrivilege && (strings.HasPrefix(code, "42") || strings.HasPrefix(code, "22") || strings.HasPrefix(code, "0A"))
}

// A silent error has a meaning and no words.
type silent struct{ error }

func (*silent) Error() string   { return "" }
func (s *silent) Unwrap() error { return s.error }
