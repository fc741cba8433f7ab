// Package history is what the workers write, and the check of what came of it.
//
// An append computes a new balance from the balance it has read, and records the
// append that it has read last. So every row names its predecessor: two rows with
// one predecessor are a lost update, whoever wrote them and in whatever order.
package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/guard"
)

// Tables has no constraint that would stop a wrong write: the check must see it.
const Tables = `
CREATE TABLE balance (
    resource    text PRIMARY KEY,
    value       bigint NOT NULL DEFAULT 0,
    fence_token bigint NOT NULL DEFAULT 0 -- for the row rule
);
CREATE TABLE history (
    resource text   NOT NULL,
    op       text   NOT NULL,
    previous text   NOT NULL, -- op of the last row that was read, '' if there was none
    position bigint NOT NULL,
    before   bigint NOT NULL, -- the balance that was read
    amount   bigint NOT NULL,
    token    bigint NOT NULL,
    nonce    text   NOT NULL,
    holder   text   NOT NULL
);`

// A Row is one append.
type Row struct {
	Resource, Op, Previous   string
	Position, Before, Amount int64
	Token                    guard.Token
	Nonce, Holder            string

	Committed time.Time // by the server's clock; the epoch where it does not keep track
}

// A Reader is a pool, a connection, a transaction, or a guard.
type Reader interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Next reads the last append and returns the one that follows it, under f.
func Next(ctx context.Context, db Reader, op string, amount int64, f guard.Fence) (Row, error) {
	r := Row{Resource: f.Resource, Op: op, Amount: amount, Token: f.Token, Nonce: f.Nonce, Holder: f.Holder}
	err := db.QueryRow(ctx, `
		SELECT b.value, coalesce(h.position, 0) + 1, coalesce(h.op, '')
		  FROM balance b LEFT JOIN LATERAL (
		       SELECT position, op FROM history WHERE resource = b.resource ORDER BY position DESC, op LIMIT 1) h ON true
		 WHERE b.resource = $1`, r.Resource).Scan(&r.Before, &r.Position, &r.Previous)
	return r, err
}

// The statements of an append, for those who have another kind of transaction than
// [Writer]: resource and new balance; [Row.Args].
const (
	SetBalance = `UPDATE balance SET value = $2 WHERE resource = $1`
	InsertRow  = `INSERT INTO history (resource, op, previous, position, before, amount, token, nonce, holder) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`

	// Single is the whole append as one statement.
	Single = `WITH set_balance AS (UPDATE balance SET value = $5::bigint + $6::bigint WHERE resource = $1) ` + InsertRow
)

// Args are those of Single.
func (r Row) Args() []any {
	return []any{r.Resource, r.Op, r.Previous, r.Position, r.Before, r.Amount, int64(r.Token), r.Nonce, r.Holder}
}

// Balance is what the append makes of the balance.
func (r Row) Balance() int64 { return r.Before + r.Amount }

// A Writer is a transaction.
type Writer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Write writes the append.
func (r Row) Write(ctx context.Context, tx Writer) error {
	if _, err := tx.Exec(ctx, SetBalance, r.Resource, r.Balance()); err != nil {
		return err
	}
	return r.Insert(ctx, tx)
}

// Insert writes the append's row and leaves the balance to others.
func (r Row) Insert(ctx context.Context, tx Writer) error {
	_, err := tx.Exec(ctx, InsertRow, r.Args()...)
	return err
}

// A Database is a pool.
type Database interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Load reads everything that there is.
func Load(ctx context.Context, db Database) (rows []Row, balances map[string]int64, err error) {
	found, err := db.Query(ctx, `
		SELECT resource, op, previous, position, before, amount, token, nonce, holder,
		       CASE WHEN current_setting('track_commit_timestamp') = 'on' THEN pg_xact_commit_timestamp(xmin) ELSE 'epoch' END FROM history`)
	if err != nil {
		return nil, nil, err
	}
	if rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[Row]); err != nil {
		return nil, nil, err
	}
	found, err = db.Query(ctx, "SELECT resource, value FROM balance")
	if err != nil {
		return nil, nil, err
	}
	balances = make(map[string]int64)
	var resource string
	var value int64
	_, err = pgx.ForEachRow(found, []any{&resource, &value}, func() error { balances[resource] = value; return nil })
	return rows, balances, err
}
