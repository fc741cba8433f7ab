package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqlerror"
	"github.com/go-fencing/fencing/sequencer"
)

// A claim is what a raise asks for: a fence, or with token 0 the next one.
type claim struct{ guard.Fence }

func (c claim) mints() bool { return c.Token == 0 }

func (c claim) what() string {
	if c.mints() {
		return "issue"
	}
	return "raise"
}

var errExhausted = fmt.Errorf("%w; an operator must run \"fencectl rebase\"", sequencer.ErrExhausted)

// over returns the fence in force after the claim was made over current, and
// whether that is a new one. It is for the dialects whose server does not decide.
func (c claim) over(current guard.Record) (next guard.Fence, changed bool, err error) {
	switch {
	case c.mints() && current.Fence.Nonce == c.Nonce && current.Fence.Token != 0:
		return current.Fence, false, nil
	case c.mints() && current.Fence.Token == math.MaxInt64:
		return guard.Fence{}, false, errExhausted
	case c.mints():
		next = c.Fence
		next.Token = current.Fence.Token + 1
		return next, true, nil
	}
	if current.Raise(c.Fence) != nil || c.Token == current.Fence.Token {
		return current.Fence, false, nil
	}
	return c.Fence, true, nil
}

// errRaiseUnknown: it has nothing to do with others, and [BlockedError] would be wrong.
var errRaiseUnknown = errors.New("the reply to the commit was lost, so it is unknown whether the fence was raised; try again, which is safe")

// commitRaise commits what raised a fence.
func commitRaise(tx *sql.Tx) error {
	err := tx.Commit()
	if err == nil || answered(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errRaiseUnknown, err)
}

// Raise implements [guard.Guard]: it makes f the current fence of its resource, in
// a transaction of its own, and returns once that has been committed.
//
// It waits for open transactions of the resource, at most the lock timeout or
// until ctx ends; then the error is [guard.ErrBlocked], a [*BlockedError] with what
// the database tells about the one in the way. A later fence in force is a
// [*guard.StaleError], and so is a token that was given up in a rebase. After any
// other error it is unknown whether f was raised; raise it again, which is safe, or
// acquire anew.
//
// It takes a connection of the pool: do not call it inside a transaction.
func (g *Guard) Raise(ctx context.Context, f guard.Fence) error {
	if err := f.Validate(); err != nil {
		return err
	}
	start := time.Now()
	current, err := g.closeGate(ctx, claim{f})
	if err == nil {
		// Whatever the database made of it, f is raised only if it is the fence in
		// force now: what a transaction has to equal to enter.
		err = current.Enter(f)
	} else {
		err = Translate(err, f) // a token that was given up in a rebase
	}
	g.observer.Raised(ctx, f, time.Since(start), err)
	return err
}

// Issue mints the next token of resource in the database and raises it in the same
// step: for a program whose only lock is this fence, or whose lock has no tokens.
// nonce is random and unique to the acquisition; a repeated call with the nonce of
// the fence in force returns that fence. Errors are those of [Guard.Raise], without
// ErrStale, and [sequencer.ErrExhausted] at the end of int64.
func (g *Guard) Issue(ctx context.Context, resource, nonce, holder string) (guard.Fence, error) {
	f := guard.Fence{Resource: resource, Token: 1, Nonce: nonce, Holder: holder} // the token is only there to be valid
	if err := f.Validate(); err != nil {
		return guard.Fence{}, err
	}
	f.Token = 0
	start := time.Now()
	current, err := g.closeGate(ctx, claim{f})
	if err == nil && current.Fence.Nonce != nonce {
		err = fmt.Errorf("sqlguard: issue %q: the server answered with the fence of another nonce", resource)
	}
	if err != nil {
		g.observer.Raised(ctx, f, time.Since(start), err)
		return guard.Fence{}, err
	}
	g.observer.Raised(ctx, current.Fence, time.Since(start), nil)
	return current.Fence, nil
}

func (g *Guard) closeGate(ctx context.Context, c claim) (guard.Record, error) {
	if err := g.ready(ctx); err != nil {
		return guard.Record{}, err
	}
	if ctx.Err() != nil {
		return guard.Record{}, fmt.Errorf("sqlguard: %s %q: nothing was sent: %w", c.what(), c.Resource, context.Cause(ctx))
	}
	record, err := g.engine.raise(within(ctx), g.db, &g.settings, c)
	if err == nil {
		record.Fence.Resource = c.Resource
		return record, nil
	}
	if isBlocked(err) {
		return guard.Record{}, err
	}
	if c.mints() && sqlerror.State(err) == "22003" { // numeric_value_out_of_range
		err = fmt.Errorf("%w: %w", errExhausted, err)
	}
	return guard.Record{}, fmt.Errorf("sqlguard: %s %q: %w", c.what(), c.Resource, because(ctx, g.missing(err)))
}

// ready checks the schema until it was found fit once.
func (g *Guard) ready(ctx context.Context) error {
	if g.checked.Load() {
		return nil
	}
	if g.db == nil {
		return errors.New("sqlguard: the guard has no database; make it with New")
	}
	if err := g.engine.check(within(ctx), sqlSession{g.db}, &g.settings); err != nil {
		return fmt.Errorf("sqlguard: check the fence schema: %w", because(ctx, g.missing(err)))
	}
	if g.dialect == SQLite {
		g.prepare(ctx)
	}
	g.checked.Store(true)
	return nil
}
