package gormguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/sqlguard"
)

// A txState is what is known of one transaction, through however many views.
type txState struct {
	mu         sync.Mutex
	foreign    bool            // others may run statements in it unseen: nothing is remembered
	used       bool            // it has run a statement, apart from entering
	entered    []guard.Fence   // since the last ROLLBACK TO
	ctx        context.Context // that the last fence was entered with, for the observer
	savepoints []string
	refused    error // the first refusal, for which it must not be committed
	refusedAt  int   // savepoints set by then
	probing    bool  // the savepoint of probe is set
	late       bool  // for a statement that may fail while its rows are read
	ended      bool  // by a statement
	lost       error // with which the database has rolled it back by itself
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

var errRows = errors.New("a statement failed while its rows were read; their Err says why")

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
	case sqlguard.RolledBack(ctx, t.plugin.dialect, t.raw, err):
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
func (t *transaction) probe(ctx context.Context, late bool) error {
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foreign || s.over() != nil {
		return nil
	}
	if _, err := t.raw.ExecContext(ctx, "SAVEPOINT "+probeName); err != nil {
		return fmt.Errorf("gormguard: set a savepoint, to see whether the next statement ends the transaction: %w", err)
	}
	s.probing, s.late = true, late
	return nil
}

// settle comes before the statement after that: rows may have been open until now.
// It comes before a commit if only the error of rows could say that there is nothing
// to commit; what commits by itself has done so.
func (t *transaction) settle(ctx context.Context, commit bool) error {
	s := t.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.probing || commit && !s.late {
		return nil
	}
	if _, err := t.raw.ExecContext(ctx, "RELEASE SAVEPOINT "+probeName); err != nil {
		if ctx.Err() != nil || errors.Is(err, sql.ErrTxDone) {
			return err // that says nothing
		}
		s.entered = nil
		if s.late {
			s.lost = errRows
		} else {
			s.ended = true
		}
	}
	s.probing = false
	return nil
}

// mayFailLate reports whether a statement may fail while its rows are read, which
// nobody sees, so that the database rolls back: one that writes or locks.
func (t *transaction) mayFailLate(query string) bool {
	if !t.rows || t.plugin.dialect == sqlguard.Postgres { // which refuses the rest by itself
		return false
	}
	for _, s := range sqltext.Statements(sqltext.Dialect(t.plugin.dialect), query) {
		if slices.ContainsFunc(s.Words, func(w string) bool { return is(w, "for", "lock", "insert", "update", "delete", "replace", "into") }) {
			return true
		}
	}
	return false
}
