package pgguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
)

// The methods of this file and of batch.go are the DBTX that sqlc's code takes.
//
// How a single call is fenced in one round trip: entering and the statement are
// sent together, without BEGIN. The server runs what comes before the next Sync
// (in the simple protocol: in one message) as one implicit transaction, so the
// gate and the setting that enter leaves hold until the statement has been
// committed, and a statement after a refusal is not run. The two remain separate
// statements, so at READ COMMITTED the second one sees what the first has waited
// for.

// Exec runs one statement under every fence of ctx, in a transaction of its own
// and one round trip.
//
// It returns [guard.ErrNoFence], before anything is sent, if ctx carries no
// fence, and [guard.ErrStale] or [guard.ErrNotRaised] if the server refuses one.
// If the connection is lost after the statement was sent, the error is
// [guard.ErrCommitUnknown]; use [Guard.InTx], which can find out, or
// [Guard.Once], where that matters.
//
// Within the function of [Guard.InTx] or [Guard.Once], call Exec of its tx: the guard's
// own is another transaction, and may have to wait for the function's; see InTx.
//
// args may begin with a [pgx.QueryRewriter] such as [pgx.NamedArgs]. A
// [pgx.QueryExecMode] and result formats are refused, because pgx's batches do
// not take them; set the mode on the pool. So are several statements in one
// string, and CALL, DO, COPY and transaction control: use InTx. So is the name of a
// prepared statement, and EXECUTE, which may stand for one of those: give the text.
func (g *Guard) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c, err := g.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := c.results.Exec()
	if err = c.close(err); err != nil {
		return pgconn.CommandTag{}, err
	}
	return tag, nil
}

// Query runs one statement that returns rows; see [Guard.Exec]. The rows hold a
// connection of the pool until they are closed or read to the end, and as long as
// the server has more of them to send they keep a raise waiting. Their Err
// includes a failure to commit: check it before you rely on what the statement
// has written.
func (g *Guard) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c, err := g.send(ctx, sql, args)
	if err != nil {
		return noRows{err}, err
	}
	return lastRows(c.results, c.close)
}

// QueryRow runs one statement of which the first row counts; see [Guard.Exec].
// Every error, a failure to commit included, is returned by Scan of the row, which
// must be called: it gives the connection back. Scan returns [pgx.ErrNoRows] if
// there is no row.
func (g *Guard) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return firstRow(g.Query(ctx, sql, args...))
}

// CopyFrom copies rows into a table, as [pgxpool.Pool.CopyFrom] does, in a
// fenced transaction.
func (g *Guard) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	var n int64
	err := g.InTx(ctx, func(tx pgx.Tx) (err error) {
		n, err = tx.CopyFrom(ctx, table, columns, rows)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// A call is one statement on its way, with the connection that it occupies.
type call struct {
	translator
	conn    *pgxpool.Conn // not to be touched once closed
	results pgx.BatchResults
	closed  bool
	broken  bool // how closed found the connection
	unknown bool // the observer was told that the outcome is
	err     error
}

// send sends enter and the statement, and reads the answer to enter. After an
// error nothing is occupied.
func (g *Guard) send(ctx context.Context, sql string, args []any) (*call, error) {
	held, err := g.fences(ctx, "statement")
	if err != nil {
		return nil, err
	}
	if err := checkAlone(sql); err != nil {
		return nil, err
	}
	if err := checkArgs(args); err != nil {
		return nil, err
	}
	if err := g.ready(ctx); err != nil {
		return nil, err
	}
	var b pgx.Batch
	b.Queue(g.sql.enterText(held, false), enterArgs(held, 0)...) // 0: it never sits idle
	b.Queue(sql, checkRewritten(args, checkAlone)...)
	return g.sendCall(ctx, held, &b)
}

// sendCall sends a batch that begins with enter.
func (g *Guard) sendCall(ctx context.Context, held []guard.Fence, b *pgx.Batch) (*call, error) {
	conn, err := g.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("pgguard: %w", err)
	}
	if err := ctx.Err(); err != nil {
		conn.Release()
		return nil, fmt.Errorf("pgguard: nothing was sent: %w", because(ctx, err))
	}
	c := &call{translator: translator{g, ctx, held}, conn: conn, results: conn.SendBatch(ctx, b)}
	if _, err := c.results.Exec(); err != nil {
		return nil, c.close(g.sql.notEntered(b.QueuedQueries[0].SQL, err))
	}
	return c, nil
}

// acquire returns a connection whose session is fit for fenced statements.
func (g *Guard) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := g.pool.Acquire(ctx)
	if err != nil {
		return nil, because(ctx, err)
	}
	if err := checkSession(conn.Conn()); err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// checkArgs refuses the options that a batch would take for arguments.
func checkArgs(args []any) error {
	for _, arg := range args {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return fmt.Errorf("pgguard: option %T is not supported in a fenced statement; set the mode on the pool, or use InTx; nothing was sent", arg)
		case pgx.QueryRewriter:
		default:
			return nil
		}
	}
	return nil
}

// close ends the implicit transaction, which commits it, and gives the connection
// back. It returns err or else the error of the commit.
func (c *call) close(err error) error {
	if c.closed {
		return c.err
	}
	c.closed = true
	defer c.conn.Release() // even if a callback of the caller's batch panics
	if closeErr := c.results.Close(); err == nil {
		err = closeErr
	}
	c.broken = c.conn.Conn().IsClosed()
	if c.err = c.explain(err); c.err == nil {
		c.guard.observer.Committed(c.ctx, c.held)
	}
	return c.err
}

// explain translates err, or says that it means that the reply to the statement
// was lost. pgx closes the connection for that, whereas it goes on after an answer
// of the server and after most errors from before anything was sent.
// (pgconn.SafeToRetry is no help: see tx.Commit.)
func (c *call) explain(err error) error {
	if err == nil || answered(err) || !c.broken && (c.closed || !c.conn.Conn().IsClosed()) {
		return c.translate(err)
	}
	if _, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err); unsent {
		return interrupted(c.ctx, err)
	}
	err = fmt.Errorf("pgguard: statement: %w: %w; read the data before you write it again", guard.ErrCommitUnknown, because(c.ctx, err))
	if !c.unknown {
		c.unknown = true
		c.guard.observer.Refused(c.ctx, err)
	}
	return err
}
