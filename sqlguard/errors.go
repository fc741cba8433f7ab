package sqlguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

// ErrSchema: the database has no fence schema, or one that this version of the
// package cannot work with. The error says what to do.
var ErrSchema = errors.New("fence schema does not fit")

// The SQLSTATEs of the fence schema in Postgres.
const (
	codeStale     = "UF001"
	codeNotRaised = "UF002"
	codeNoFence   = "UF003"
	codeUnguarded = "UF004"
)

// errOldSnapshot: see mysqlEngine.enter.
var errOldSnapshot = errors.New("this transaction began to read before the fence was raised, and does not see what was written until then; " +
	"run it again, or acquire the lock before it begins, or use READ COMMITTED")

// Retryable reports whether err may go away when the whole transaction is run
// again: a serialization failure or a deadlock in Postgres; a deadlock, a lock
// wait timeout, a changed snapshot or one from before the raise in MySQL and MariaDB; a database that is
// busy, or was written since the transaction began to read, in SQLite.
//
// Some of them are ambiguous: the other transaction may have been a rival's raise,
// or just another writer. Run [Guard.InTx] again; the fence is entered again, and
// the second answer is definite. A refused fence is never retryable, although in
// Postgres ErrNotRaised is not definite above READ COMMITTED if the transaction has
// read before the resource's first raise, which it does not see.
func Retryable(err error) bool {
	for _, definite := range []error{guard.ErrStale, guard.ErrNotRaised, guard.ErrNoFence, guard.ErrCommitUnknown, guard.ErrBlocked} {
		if errors.Is(err, definite) {
			return false
		}
	}
	if state := sqlerror.State(err); state == "40001" || state == "40P01" {
		return true
	}
	switch sqlerror.MySQLNumber(err) {
	case mysqlDeadlock, mysqlLockWaitTimeout, mysqlRecordChanged:
		return true
	}
	return isBusy(err) || errors.Is(err, errOldSnapshot)
}

// A refusal is a refused fence or write, in the words of package guard, with the
// error of the driver if the server said so.
type refusal struct {
	meaning error
	cause   error
}

func (e *refusal) Error() string { return e.meaning.Error() }

func (e *refusal) Unwrap() []error {
	if e.cause == nil {
		return []error{e.meaning}
	}
	return []error{e.meaning, e.cause}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// detail is the DETAIL of UF001 and UF002: the fence in force.
type detail struct {
	Resource string      `json:"resource"`
	Token    guard.Token `json:"token"`
	Holder   string      `json:"holder"`
	RaisedAt time.Time   `json:"raised_at"`
}

// Translate turns a refusal of the fence schema in Postgres, such as that of a
// trigger, into the error of package guard that it means, which wraps the
// driver's. held are the fences of the transaction. Every other error is returned
// as it is: in the other dialects no server refuses a fence, [Enter] does.
func Translate(err error, held ...guard.Fence) error {
	if err == nil || isRefusal(err) {
		return err
	}
	state := sqlerror.State(err)
	if !strings.HasPrefix(state, "UF") {
		return err
	}
	switch state {
	case codeStale, codeNotRaised:
		var d detail
		_ = json.Unmarshal([]byte(sqlerror.Detail(err)), &d) // the code alone decides; without the facts the message is poorer
		mine := heldOf(held, d.Resource)
		current := guard.Fence{Resource: d.Resource, Token: d.Token, Holder: d.Holder}
		if state == codeStale {
			return &refusal{&guard.StaleError{Held: mine, Current: current, Since: d.RaisedAt}, err}
		}
		if d.Token == 0 {
			current = guard.Fence{}
		}
		return &refusal{&guard.NotRaisedError{Held: mine, Current: current}, err}
	case codeNoFence, codeUnguarded:
		return &refusal{fmt.Errorf("sqlguard: %w for that row; entered were %s: %w", guard.ErrNoFence, names(held), err), err}
	}
	return err
}

func heldOf(held []guard.Fence, resource string) guard.Fence {
	for _, f := range held {
		if f.Resource == resource {
			return f
		}
	}
	if len(held) == 1 && resource == "" {
		return held[0]
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

// translated is Translate, and tells the observer where a fence was refused. Where ctx
// has interrupted a statement it adds why.
func (s *settings) translated(ctx context.Context, err error, held []guard.Fence) error {
	if err == nil || isRefusal(err) {
		return err
	}
	err = Translate(err, held...)
	if isRefusal(err) {
		s.observer.Refused(ctx, err)
		return err
	}
	return interrupted(ctx, err)
}

// missing explains an error that says that there is no fence schema, that this
// user may not use it, or that the server is of another dialect.
func (s *settings) missing(err error) error {
	state, number := sqlerror.State(err), sqlerror.MySQLNumber(err)
	if mistaken := sqlerror.MistakenDialect(err, string(s.dialect)); mistaken != nil {
		return mistaken
	}
	switch {
	case state == "3F000" || state == "42883":
		return fmt.Errorf("%w: it is missing in this database; run \"%s\", or install it with package migrations: %w", ErrSchema, s.sql.migrate, err)
	case number == mysqlNoSuchTable || noSuchTable(err):
		return fmt.Errorf("%w: it is missing in this database; install it with package migrations: %w", ErrSchema, err)
	case state == "42501" || number == mysqlTableAccessDenied:
		return fmt.Errorf("%w: this user may not use it; grant it what the migrations say: %w", ErrSchema, err)
	}
	return err
}
