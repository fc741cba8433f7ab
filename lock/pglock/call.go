package pglock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
)

// ErrSchema: the database has no fence schema, or one without leases, or one that lacks
// a part. The error says what to do.
var ErrSchema = errors.New("fence schema does not fit")

// rollbackTimeout bounds what is done on a context that may be dead already.
const rollbackTimeout = 5 * time.Second

// texts are the statements of a back end, built once: pgx finds a prepared
// statement by its text.
type texts struct{ acquire, inTurn, withdraw, renew, release, holding string }

func textsFor(schema string) texts {
	quoted := pgx.Identifier{schema}.Sanitize()
	in := func(sql string) string { return strings.ReplaceAll(sql, "{}", quoted) }
	return texts{
		acquire:  in("select token, holder, remaining from {}.lease_acquire($1, $2, $3, $4, $5, $6, $7)"),
		inTurn:   in("select token, holder, remaining from {}.lease_acquire_in_turn($1, $2, $3, $4, $5, $6, $7, $8)"),
		withdraw: in("select {}.lease_withdraw($1, $2)"),
		renew:    in("select renewed, renewed_by from {}.lease_renew($1, $2, $3, $4)"),
		release:  in("select {}.lease_release($1, $2, $3)"),
		holding:  in("select token, holder, members, remaining from {}.lease_holding($1)"),
	}
}

// call runs one statement of the schema in a transaction of its own and one round
// trip. What it returned counts once the commit has succeeded. The level is spelled
// out because at a higher one, which a session may have by default, contenders
// would fail instead of waiting for each other's commits.
func (b *Backend) call(ctx context.Context, read func(pgx.BatchResults) error, sql string, args ...any) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = send(ctx, conn, read, sql, args); err != nil {
		rollback(ctx, conn)
	}
	return err
}

func send(ctx context.Context, conn *pgxpool.Conn, read func(pgx.BatchResults) error, sql string, args []any) (err error) {
	var batch pgx.Batch
	batch.Queue("begin isolation level read committed")
	batch.Queue(sql, args...)
	batch.Queue("commit")
	results := conn.SendBatch(ctx, &batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return err
	}
	if err := read(results); err != nil {
		return err
	}
	tag, err := results.Exec()
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// row reads a result of one row.
func row(dst ...any) func(pgx.BatchResults) error {
	return func(results pgx.BatchResults) error { return results.QueryRow().Scan(dst...) }
}

// rollback ends a transaction that was left open on conn. Where that fails, the
// pool closes the connection when it is released, and the server rolls back.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if c := conn.Conn().PgConn(); c.IsClosed() || c.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

// failed says what failed, and adds to an error of the server its meaning, or what
// its reader can do about it.
func (b *Backend) failed(ctx context.Context, what, resource string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("pglock: %s %q: %w", what, resource, b.explain(err))
}

func (b *Backend) explain(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch pgErr.Code {
	case "UF005":
		return fmt.Errorf("%w; the fence in the store is probably poisoned, an operator must run \"fencectl rebase\": %w", sequencer.ErrJump, err)
	case "22003": // numeric_value_out_of_range
		return fmt.Errorf("%w; an operator must run \"fencectl rebase\": %w", sequencer.ErrExhausted, err)
	case "55P03": // lock_not_available
		if pgErr.Detail == "" { // not of a raise, which says whom it waited for
			return fmt.Errorf("the lock_timeout of the session ended it, try again; leases do without, see whether the pool, the role or the database sets one: %w", err)
		}
		return fmt.Errorf("%w%s; try again or end that transaction: %w", guard.ErrBlocked, blocker(pgErr.Detail), err)
	case "3F000", "42883": // no such schema, function
		return fmt.Errorf("%w: %q has no leases in this database; run \"fencectl migrate up\": %w", ErrSchema, b.config.schema, err)
	case "42P01", "42703", "42704", "42601": // undefined table, column, object; an INSERT that does not fit its table
		return fmt.Errorf("%w: a table of %q was removed or changed since \"fencectl migrate up\"; restore it from a backup: %w", ErrSchema, b.config.schema, err)
	case "UF007":
		return fmt.Errorf("%w: lease_counter of %q has lost rows, as by TRUNCATE or a restore without data; %s: %w", ErrSchema, b.config.schema, pgErr.Hint, err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("%w: this role may not use %q; grant it USAGE on the schema and EXECUTE on its functions: %w", ErrSchema, b.config.schema, err)
	case "25006": // read_only_sql_transaction
		return fmt.Errorf("the server is a standby, or the session is read-only; connect to the primary: %w", err)
	}
	return err
}

// blocker names the backend in the way of a raise, from the error's detail.
func blocker(detail string) string {
	var d struct {
		PID         int32  `json:"pid"`
		Application string `json:"application_name"`
		State       string `json:"state"`
	}
	if json.Unmarshal([]byte(detail), &d) != nil || d.PID == 0 { // the code alone decides
		return ""
	}
	return fmt.Sprintf(" by backend %d of application %q, %s", d.PID, d.Application, d.State)
}
