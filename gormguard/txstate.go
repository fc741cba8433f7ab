package gormguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/sqlguard"
)

// A txState is what is known of one transaction, through however many views.
type txState struct {
	mu         sync.Mutex
	foreign    bool            // others may run statements in it unseen: nothing is remembered
	used       bool            // it has run a statement, apart from entering
	entered    []guard.Fence   // since the last ROLLBACK TO
	ctx        context.Context // that it was begun with, or the last fence was entered with
	savepoints []string
	refused    error           // the first refusal, for which it must not be committed
	refusedAt  int             // savepoints set by then
	probing    sqltext.Control // the savepoint of probe is set, for a statement that does this
	unseen     bool            // rows were handed out, whose error ends it too
	ended      bool            // by a statement
	unsure     bool            // nor does the caller know that
	lost       error           // with which the database has rolled it back by itself
}

// over returns why nothing can be fenced in the transaction any more.
func (s *txState) over() error {
	switch {
	case s.lost != nil:
		return fmt.Errorf("gormguard: nothing was written, the database has rolled back this transaction by itself: %w", s.lost)
	case s.ended:
		return errEnded
	}
	return nil
}

var errEnded = errors.New("gormguard: a statement of raw SQL has ended this transaction; roll it back, a guarded write in it cannot be fenced any more")

var errRows = errors.New("a statement failed while its rows were read, as their Err says, or they are still open: close all rows before")

// ran notes what a statement has done to the transaction, which has failed with err
// or not.
func (t *transaction) ran(ctx context.Context, steps []sqltext.Step, err error) {
	if len(steps) > 0 {
		t.state.apply(steps, err == nil)
	}
	t.failed(ctx, err)
}

// apply notes what the statements of a text have done, if not all of them certainly
// have: it may have failed halfway.
func (s *txState) apply(steps []sqltext.Step, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, step := range steps {
		switch step.Control {
		case sqltext.RollbackTo:
			s.entered = nil
		case sqltext.End:
			s.entered, s.ended = nil, true
		}
		if all || step.Control == sqltext.Savepoint {
			s.nest(step)
		}
	}
}

// nest keeps the savepoints. Of those of one name the last is meant; the others
// need not be there any more, and that does no harm: what is said of them the server
// refuses.
func (s *txState) nest(step sqltext.Step) {
	i := len(s.savepoints) - 1
	for i >= 0 && !strings.EqualFold(s.savepoints[i], step.Name) {
		i--
	}
	switch {
	case step.Control == sqltext.Savepoint:
		s.savepoints = append(s.savepoints, step.Name)
	case i < 0:
	case step.Control == sqltext.Release:
		s.savepoints = s.savepoints[:i]
		s.refusedAt = min(s.refusedAt, i)
	case step.Control == sqltext.RollbackTo:
		s.savepoints = s.savepoints[:i+1]
		if i < s.refusedAt {
			s.refused = nil // what was refused has been undone, and the caller knows
		}
	}
}

// failed notes what the error of a statement means for the transaction. A refusal
// in ModeRow alone means nothing: there each statement is judged by itself.
func (t *transaction) failed(ctx context.Context, err error) {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	t.failedLocked(ctx, err, t.plugin.mode.fences())
}

func (t *transaction) failedLocked(ctx context.Context, err error, dooms bool) {
	s := t.state
	switch {
	case err == nil || s.over() != nil:
	case isRefusal(err):
		if s.refused == nil && dooms {
			s.refused, s.refusedAt = err, len(s.savepoints)
		}
	case !s.foreign && sqlguard.RolledBack(ctx, t.plugin.dialect, t.raw, err):
		s.lost, s.entered = err, nil
	}
}

// The savepoint of probe. MySQL commits before many statements and inside of
// procedures, and no list of them is complete; so the server is asked. What ends a
// transaction ends its savepoints, even if it begins another one.
const probeName = "gormguard_probe"

// mayEnd reports whether that has to be found out.
func mayEnd(step sqltext.Step) bool {
	return step.Control == sqltext.Commits || step.Control == sqltext.Unknown
}

// probe comes before a statement of which nobody can tell whether it will end the
// transaction.
func (t *transaction) probe(ctx context.Context, steps []sqltext.Step) error {
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foreign || s.over() != nil {
		return nil
	}
	if _, err := t.raw.ExecContext(ctx, "SAVEPOINT "+probeName); err != nil {
		return fmt.Errorf("gormguard: set a savepoint, to see whether the next statement ends the transaction: %w", because(ctx, err))
	}
	for _, step := range steps {
		s.probing = max(s.probing, step.Control)
	}
	return nil
}

// settle comes before the statement after that: rows may have been open until now.
func (t *transaction) settle(ctx context.Context) error {
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probing == 0 {
		return nil
	}
	if _, err := t.raw.ExecContext(ctx, "RELEASE SAVEPOINT "+probeName); err != nil {
		if ctx.Err() != nil || errors.Is(err, sql.ErrTxDone) {
			return because(ctx, err) // that says nothing
		}
		if !aborted(err) {
			s.ended = true
			s.unsure = s.probing == sqltext.Unknown && len(s.entered) > 0
		}
		s.entered = nil
	}
	s.probing = 0
	return nil
}

// aborted reports whether Postgres refuses all but a rollback, to a savepoint too: so
// the transaction is still there.
func aborted(err error) bool { return sqlerror.State(err) == "25P02" }

// lookLocked finds out whether rows have failed that were handed out: MySQL and SQLite may
// have rolled back then. In SQLite they may do so while others of them are written.
func (t *transaction) lookLocked(ctx context.Context) error {
	s := t.state
	if !s.unseen || s.foreign || s.over() != nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return because(ctx, err)
	}
	if sqlguard.RolledBack(ctx, t.plugin.dialect, t.raw, nil) {
		s.lost, s.entered = errRows, nil
	}
	s.unseen = t.plugin.dialect == sqlguard.SQLite
	return nil
}
