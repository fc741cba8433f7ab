package pgguard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SendBatch sends a batch under every fence of ctx, as one transaction and in one
// round trip; see [Guard.Exec]. The results must be closed, and the error of
// Close checked: it includes a failure to commit. As always in pgx, a batch can be
// sent only once.
//
// A batch that begins a transaction with [pgx.Batch.BeginTx] enters it, and the
// transaction of its results is a fenced one, as from [Guard.BeginTx], except that
// the options are pgx's own: above READ COMMITTED the server refuses READ ONLY, and
// a CommitQuery must commit.
func (g *Guard) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	begins := beginsTx(b)
	held, err := g.fences(ctx, "batch")
	if err == nil {
		err = checkBatch(b, begins)
	}
	if err == nil {
		err = g.ready(ctx)
	}
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	if begins {
		return g.sendBegin(ctx, b, translator{g, ctx, held})
	}
	enter := &pgx.QueuedQuery{SQL: g.sql.enterText(held, false), Arguments: enterArgs(held, 0)}
	c, err := g.sendCall(ctx, held, insert(b, 0, enter))
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &callResults{c}
}

// insert returns a copy of b with a query at i. The caller's batch stays as it is.
func insert(b *pgx.Batch, i int, q *pgx.QueuedQuery) *pgx.Batch {
	fenced := *b
	fenced.QueuedQueries = slices.Insert(slices.Clone(b.QueuedQueries), i, q)
	return &fenced
}

// beginsTx reports whether b began with Batch.BeginTx, which pgx tells only
// through the results.
func beginsTx(b *pgx.Batch) bool {
	return pgx.FailedBatchResults(b, errors.New("not sent")).Tx() != nil
}

func checkBatch(b *pgx.Batch, begins bool) error {
	check, queries := checkAlone, b.QueuedQueries
	if begins {
		check, queries = checkQueued, queries[1:] // the first one is pgx's own
	}
	for i, q := range queries {
		err := check(q.SQL)
		if err == nil {
			err = checkArgs(q.Arguments)
		}
		if err != nil {
			return fmt.Errorf("%w (query %d of the batch)", err, i+1)
		}
		q.Arguments = checkRewritten(q.Arguments, check)
	}
	return nil
}

// callResults are the results of a batch without BEGIN, after that of enter.
type callResults struct{ call *call }

func (r *callResults) Exec() (pgconn.CommandTag, error) {
	tag, err := r.call.results.Exec()
	return tag, r.call.explain(err)
}

func (r *callResults) Query() (pgx.Rows, error) {
	rows, err := r.call.results.Query()
	return wrapRows(rows, err, r.call.explain)
}

func (r *callResults) QueryRow() pgx.Row {
	return txRow{r.call.results.QueryRow(), r.call.explain}
}

func (r *callResults) Close() error { return r.call.close(nil) }

// Tx returns nil: the batch began no transaction that outlives it.
func (r *callResults) Tx() pgx.Tx { return nil }

// sendBegin sends a batch that begins a transaction, with enter after BEGIN.
func (g *Guard) sendBegin(ctx context.Context, b *pgx.Batch, t translator) pgx.BatchResults {
	enter := &pgx.QueuedQuery{SQL: g.sql.enterText(t.held, true), Arguments: enterArgs(t.held, g.idleTimeout)}
	r := &beginResults{translator: t, enterSQL: enter.SQL}
	enter.QueryRow(r.enter) // pgx calls it for what is left when the results are closed
	conn, err := g.acquire(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, fmt.Errorf("pgguard: batch: no connection: %w", err))
	}
	r.tx = newTx(conn, t)
	r.results = conn.SendBatch(ctx, insert(b, 1, enter))
	r.tx.Tx = r.results.Tx()
	return r
}

// beginResults are the results of a batch that begins a transaction. The result
// of enter comes after that of BEGIN and is kept from the caller.
type beginResults struct {
	translator
	enterSQL string
	results  pgx.BatchResults
	tx       *tx
	read     int // how many results were read
	err      error
}

// enter reads the result of enter.
func (r *beginResults) enter(row pgx.Row) error {
	return r.guard.sql.notEntered(r.enterSQL, r.tx.receipt.scan(row))
}

// next reads the result of enter if it is its turn.
func (r *beginResults) next() error {
	if r.read == 1 {
		r.err = r.translate(r.enter(r.results.QueryRow()))
	}
	r.read++
	return r.err
}

func (r *beginResults) Exec() (pgconn.CommandTag, error) {
	if err := r.next(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := r.results.Exec()
	return tag, r.translate(err)
}

func (r *beginResults) Query() (pgx.Rows, error) {
	if err := r.next(); err != nil {
		return noRows{err}, err
	}
	rows, err := r.results.Query()
	return wrapRows(rows, err, r.translate)
}

func (r *beginResults) QueryRow() pgx.Row {
	if err := r.next(); err != nil {
		return noRow{err}
	}
	return txRow{r.results.QueryRow(), r.translate}
}

func (r *beginResults) Close() error {
	err := r.results.Close()
	if r.tx.ended() {
		r.tx.closed = true // BEGIN itself has failed
	}
	if r.err != nil {
		return r.err
	}
	if _, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err); unsent { // before BEGIN was sent
		err = r.guard.sql.notEntered(r.enterSQL, err)
	}
	r.err = r.translate(err)
	return r.err
}

func (r *beginResults) Tx() pgx.Tx { return r.tx }
