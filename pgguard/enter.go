package pgguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/guard"
)

// Enter enters fences in a transaction that the caller has begun, or every fence
// of ctx if none is given. It returns [guard.ErrNoFence], before anything is
// sent, if there is none at all. After any other error the transaction can only
// be rolled back.
//
// Call it before the transaction reads or writes anything, and before its first
// savepoint: PostgreSQL gives up what was entered inside a savepoint when that is
// rolled back. After a ROLLBACK TO a savepoint that was set before Enter, enter
// again. Enter remembers nothing, so it may be called as often as you like.
//
// The fence schema is "fencing", and the idle timeout of the transaction becomes
// the default of [WithIdleTimeout]; [Guard.Enter] takes both from the guard. A
// lost reply of the transaction's own Commit is not resolved; prefer
// [Guard.InTx], which does that.
func Enter(ctx context.Context, tx pgx.Tx, fences ...guard.Fence) error {
	const idle = int32(defaultLockTimeout / 2 / time.Millisecond)
	return enter(ctx, tx, &defaultTexts, idle, fences, translate)
}

// Enter is [Enter] with the schema and the idle timeout of the guard.
func (g *Guard) Enter(ctx context.Context, tx pgx.Tx, fences ...guard.Fence) error {
	if len(fences) == 0 {
		var err error
		if fences, err = g.fences(ctx, "enter"); err != nil {
			return err
		}
	}
	err := enter(ctx, tx, &g.sql, g.idleTimeout, fences, func(err error, held []guard.Fence) error { return g.refused(ctx, err, held) })
	if err != nil {
		return err
	}
	// In the transaction, because the pool may have no other connection; and after
	// entering, because above READ COMMITTED the first statement takes the snapshot.
	return g.readyOn(ctx, tx)
}

func enter(ctx context.Context, tx pgx.Tx, sql *texts, idle int32, held []guard.Fence, translate func(error, []guard.Fence) error) error {
	if len(held) == 0 {
		var err error
		if held, err = fences(ctx, "enter"); err != nil {
			return err
		}
	} else if err := valid(held); err != nil {
		return err
	}
	if tx == nil {
		return errors.New("pgguard: enter: the transaction is nil; nothing was sent")
	}
	exec := tx.Exec
	if fenced, ok := tx.(interface {
		execRaw(context.Context, string, ...any) (pgconn.CommandTag, error)
	}); ok {
		exec = fenced.execRaw // the transaction would explain a refusal by the fences that it has already
	}
	_, err := exec(ctx, sql.enterText(held, false), enterArgs(held, idle)...)
	if err == nil {
		return nil
	}
	if refusal := translate(err, held); isRefusal(refusal) {
		return refusal
	}
	return fmt.Errorf("pgguard: enter: %w", because(ctx, sql.missing(err)))
}

// enterText returns the statement that enters held; with a receipt it also
// returns what identifies the transaction afterwards.
func (t *texts) enterText(held []guard.Fence, receipt bool) string {
	switch single := len(held) == 1; {
	case receipt && single:
		return t.begin
	case receipt:
		return t.beginAll
	case single:
		return t.enter
	default:
		return t.enterAll
	}
}

// enterArgs returns the arguments of enterText. idle is in milliseconds; 0 leaves
// the server's setting as it is.
func enterArgs(held []guard.Fence, idle int32) []any {
	var timeout any
	if idle != 0 {
		timeout = idle
	}
	if len(held) == 1 {
		return []any{held[0].Resource, int64(held[0].Token), held[0].Nonce, timeout}
	}
	resources, tokens, nonces := make([]string, len(held)), make([]int64, len(held)), make([]string, len(held))
	for i, f := range held {
		resources[i], tokens[i], nonces[i] = f.Resource, int64(f.Token), f.Nonce
	}
	return []any{resources, tokens, nonces, timeout}
}
