package pgguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/guard"
)

// The SQLSTATEs of the fence schema.
const (
	codeStale     = "UF001"
	codeNotRaised = "UF002"
	codeNoFence   = "UF003"
	codeUnguarded = "UF004"
)

// codeIdle is idle_in_transaction_session_timeout.
const codeIdle = "25P03"

// Retryable reports whether err may go away when the whole transaction is run
// again: a serialization failure (40001) or a deadlock (40P01).
//
// At REPEATABLE READ and SERIALIZABLE a serialization failure is ambiguous: the
// other transaction may have been a rival's raise, or just another writer. Run
// [Guard.InTx] again; the fence is entered again, and the second answer is
// definite. A refused fence is never retryable.
func Retryable(err error) bool {
	if errors.Is(err, guard.ErrStale) || errors.Is(err, guard.ErrNotRaised) || errors.Is(err, guard.ErrNoFence) || errors.Is(err, guard.ErrCommitUnknown) {
		return false
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

// A refusal is what the fence schema answered, in the words of package guard. It
// is both the meaning and the driver's error.
type refusal struct {
	meaning error
	cause   error
}

func (e *refusal) Error() string   { return e.meaning.Error() }
func (e *refusal) Unwrap() []error { return []error{e.meaning, e.cause} }

// detail is the DETAIL of UF001 and UF002: the fence in force.
type detail struct {
	Resource string      `json:"resource"`
	Token    guard.Token `json:"token"`
	Holder   string      `json:"holder"`
	RaisedAt time.Time   `json:"raised_at"`
}

// translate turns an error of the fence schema into the error of package guard
// that it means, and returns every other error as it is. held are the fences of
// the transaction.
func translate(err error, held []guard.Fence) error {
	if err == nil || isRefusal(err) {
		return err
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.HasPrefix(pgErr.Code, "UF") {
		return err
	}
	switch pgErr.Code {
	case codeStale, codeNotRaised:
		var d detail
		_ = json.Unmarshal([]byte(pgErr.Detail), &d) // the code alone decides; without the facts the message is poorer
		mine := heldOf(held, d.Resource)
		current := guard.Fence{Resource: d.Resource, Token: d.Token, Holder: d.Holder}
		if pgErr.Code == codeStale {
			return &refusal{&guard.StaleError{Held: mine, Current: current, Since: d.RaisedAt}, err}
		}
		if d.Token == 0 {
			current = guard.Fence{}
		}
		return &refusal{&guard.NotRaisedError{Held: mine, Current: current}, err}
	case codeNoFence, codeUnguarded:
		return &refusal{unguarded(pgErr, held), err}
	}
	return err
}

// unguarded explains a write that the trigger of a protected table refused.
func unguarded(pgErr *pgconn.PgError, held []guard.Fence) error {
	var d struct{ Operation, Table, Resource string }
	_ = json.Unmarshal([]byte(pgErr.Detail), &d) // as in translate
	switch {
	case d.Operation == "":
		return fmt.Errorf("pgguard: %s: %w for that row; entered were %s", strings.TrimPrefix(pgErr.Message, "fencing: "), guard.ErrNoFence, names(held))
	case d.Operation == "TRUNCATE" && d.Resource != "":
		return fmt.Errorf("pgguard: TRUNCATE of %s: always refused where rows have their own fences, %w is enough; use DELETE", d.Table, guard.ErrNoFence)
	case d.Resource == "":
		return fmt.Errorf("pgguard: %s of %s refused: %w for that row; entered were %s", d.Operation, d.Table, guard.ErrNoFence, names(held))
	}
	return fmt.Errorf("pgguard: %s of %s refused: %w for that row; entered were %s, the row needs %s",
		d.Operation, d.Table, guard.ErrNoFence, names(held), d.Resource)
}

func heldOf(held []guard.Fence, resource string) guard.Fence {
	for _, f := range held {
		if f.Resource == resource {
			return f
		}
	}
	return guard.Fence{Resource: resource}
}

func names(held []guard.Fence) string {
	if len(held) == 0 {
		return "none"
	}
	quoted := make([]string, len(held))
	for i, f := range held {
		quoted[i] = fmt.Sprintf("%q", f.Resource)
	}
	return strings.Join(quoted, ", ")
}

// refused translates err, and tells the observer, once, where a fence was refused.
// Where ctx has interrupted a statement it adds why.
func (g *Guard) refused(ctx context.Context, err error, held []guard.Fence) error {
	if isRefusal(err) {
		return err
	}
	translated := translate(err, held)
	if isRefusal(translated) {
		g.observer.Refused(ctx, translated)
		return translated
	}
	return interrupted(ctx, translated)
}

// sleptIn reports whether the server has ended a transaction because it sat idle,
// and explains that.
func (g *Guard) sleptIn(err error) (error, bool) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != codeIdle {
		return err, false
	}
	return fmt.Errorf("it sat idle for longer than it may (%v, or less if the session says so) and was ended by the server; keep slow work out of it, or see WithIdleTimeout: %w",
		time.Duration(g.idleTimeout)*time.Millisecond, err), true
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// because adds the cause of ctx's end to an error that comes from it: a lease's
// context says why it was lost, pgx only that it was cancelled.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// interrupted is because for an error that may have come without the end of ctx, such
// as that of a function.
func interrupted(ctx context.Context, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pgErr.Code == "57014" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) { // query_canceled: a pool may be set to ask for that
		return because(ctx, err)
	}
	return err
}
