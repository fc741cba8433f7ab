package gormguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

// ErrRaw: SQL that GORM did not build writes a guarded table in ModeRow or
// ModeBoth, where nobody could compare and stamp its rows; or a statement is built
// in a way that cannot be guarded. Nothing was written. [Unguarded] is the way out.
// It is [guard.ErrUnguarded] too.
var ErrRaw = fmt.Errorf("%w: the statement cannot be guarded", guard.ErrUnguarded)

func noFence(table string) error {
	return fmt.Errorf("gormguard: write to %q: %w in the context; use db.WithContext with the context of a lease; nothing was written", table, guard.ErrNoFence)
}

func raw(table, why string) error {
	return fmt.Errorf("gormguard: write to %q: %w: %s; nothing was written; gormguard.Unguarded lets it through and tells the observer", table, ErrRaw, why)
}

// guessed says so where a refusal is that of a text which may write no guarded table.
func guessed(v rawsql.Verdict, err error) error {
	if err == nil || !v.Guessed {
		return err
	}
	return fmt.Errorf("%w; its text cannot be read for certain (a backslash before a quote, U&\"...\", a comment that some versions run), and counts as a write by the words in it: pass strings as arguments", err)
}

// because adds the cause of ctx's end to an error that comes from it: a lease's
// context says why it was lost, database/sql only that it was cancelled, or that the
// transaction, which ended with it, is done. It also explains why the server has ended one.
func because(ctx context.Context, err error) error {
	if sleptIn(err) {
		return fmt.Errorf("gormguard: nothing was written: the transaction sat idle for longer than it may (5s, or what sqlguard.WithIdleTimeout or the session says) and was ended by the server; "+
			"keep slow work out of it, or see sqlguard.WithIdleTimeout: %w", err)
	}
	if err == nil || ctx == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// sleptIn reports whether Postgres has ended a transaction because it sat idle: a fence
// that is entered shortens the time that it may. Nothing that was sent then has run.
func sleptIn(err error) bool {
	return sqlerror.State(err) == "25P03" && !strings.HasPrefix(err.Error(), "gormguard: ")
}

// isRefusal reports whether an error of a guard must survive whatever is added
// after it.
func isRefusal(err error) bool {
	for _, sentinel := range []error{guard.ErrStale, guard.ErrNotRaised, guard.ErrNoFence, ErrRaw} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
