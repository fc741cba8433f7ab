package pgguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
)

// Raise implements [guard.Guard]: it makes f the current fence of its resource,
// in a transaction of its own and one round trip, and returns once that has been
// committed.
//
// It waits for open transactions of the resource, at most the lock timeout or
// until ctx or the session's statement_timeout ends it; then the error is
// [guard.ErrBlocked], with the backend in the way as a [*BlockedError]. To find that
// takes up to 1s after the end of ctx. A later fence in force is a
// [*guard.StaleError], and so is a token that was given up in a rebase. After any
// other error, and after the end of ctx, it is unknown whether f was or still will be
// raised; raise it again, which is safe, or acquire anew.
func (g *Guard) Raise(ctx context.Context, f guard.Fence) error {
	if err := f.Validate(); err != nil {
		return err
	}
	start := time.Now()
	current, err := g.closeGate(ctx, "raise", f.Resource, g.sql.raise, f.Resource, int64(f.Token), f.Nonce, f.Holder, g.lockTimeout)
	if err == nil {
		// Whatever the server made of it, f is raised only if it is the fence in
		// force now: what a transaction has to equal to enter.
		err = current.Enter(f)
	} else {
		err = translate(err, []guard.Fence{f}) // a token that was given up in a rebase
	}
	g.observer.Raised(ctx, f, time.Since(start), err)
	return err
}

// Issue mints the next token of resource in the database and raises it in the
// same step: for a program whose only lock is this fence, or whose lock has no
// tokens. nonce is random and unique to the acquisition; a repeated call with the
// nonce of the fence in force returns that fence. Errors are those of
// [Guard.Raise], without ErrStale, and [sequencer.ErrExhausted] at the end of int64.
func (g *Guard) Issue(ctx context.Context, resource, nonce, holder string) (guard.Fence, error) {
	f := guard.Fence{Resource: resource, Token: 1, Nonce: nonce, Holder: holder} // the token is only there to be valid
	if err := f.Validate(); err != nil {
		return guard.Fence{}, err
	}
	start := time.Now()
	current, err := g.closeGate(ctx, "issue", resource, g.sql.issue, resource, nonce, holder, g.lockTimeout)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "22003" { // numeric_value_out_of_range
		err = fmt.Errorf("%w: %w; an operator must run \"fencectl rebase\"", err, sequencer.ErrExhausted)
	}
	if err == nil && current.Fence.Nonce != nonce {
		err = fmt.Errorf("pgguard: issue %q: the server answered with the fence of another nonce", resource)
	}
	if err != nil {
		f.Token = 0
		g.observer.Raised(ctx, f, time.Since(start), err)
		return guard.Fence{}, err
	}
	g.observer.Raised(ctx, current.Fence, time.Since(start), nil)
	return current.Fence, nil
}

// closeGate runs one statement of the fence schema that takes the gate of
// resource alone, and returns the fence that was in force when its transaction
// committed.
func (g *Guard) closeGate(ctx context.Context, what, resource, sql string, args ...any) (guard.Record, error) {
	if err := g.ready(ctx); err != nil {
		return guard.Record{}, err
	}
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return guard.Record{}, fmt.Errorf("pgguard: %s %q: %w", what, resource, because(ctx, err))
	}
	defer conn.Release()
	start := time.Now()
	record, err := sendGate(ctx, conn, sql, args)
	if err == nil {
		record.Fence.Resource = resource
		return record, nil
	}
	waited := time.Since(start)
	rollback(ctx, conn)
	pid := conn.Conn().PgConn().PID()
	conn.Release() // before the search for what blocked it, which may have to wait for this connection
	if blocked := g.blocked(ctx, pid, resource, waited, err); blocked != nil {
		return guard.Record{}, blocked
	}
	return guard.Record{}, fmt.Errorf("pgguard: %s %q: %w", what, resource, because(ctx, g.sql.missing(err)))
}

// sendGate sends BEGIN, the statement and COMMIT in one round trip. The level is
// spelled out because the server refuses to raise at any other: see the function
// fencing.close_gate.
func sendGate(ctx context.Context, conn *pgxpool.Conn, sql string, args []any) (record guard.Record, err error) {
	var b pgx.Batch
	b.Queue("begin isolation level read committed")
	b.Queue(sql, args...)
	b.Queue("commit")
	results := conn.SendBatch(ctx, &b)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return record, err
	}
	f := &record.Fence
	if err := results.QueryRow().Scan((*int64)(&f.Token), &f.Nonce, &f.Holder, &record.Since); err != nil {
		return record, err
	}
	var tag pgconn.CommandTag
	if tag, err = results.Exec(); err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	return record, err
}

// rollback ends a transaction that was left open on conn. Where that fails, the
// pool closes the connection when it is released, and the server rolls back.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if pc := conn.Conn().PgConn(); pc.IsClosed() || pc.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBound)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}
