package pgguard

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

const maxOperation = 512 // bytes, as in the table fencing.operation

// Once is [Guard.InTx] for an operation that must be applied at most once, however
// often and from wherever it is submitted: a payment, a message that is delivered
// again, a call whose commit became [guard.ErrCommitUnknown]. operation names it,
// in 1 to 512 bytes.
//
// The name is recorded in the transaction that applies the operation, so both are
// committed or neither is. If it was recorded before, Once returns nil without
// running fn. A concurrent Once of the same operation waits for the other one,
// and runs fn only if that is rolled back. Claiming the name costs no round trip
// of its own.
//
// As in InTx, fn works on its tx alone. A Once of the same operation within fn waits
// for the outer one, until the idle timeout ends that.
//
// Names live in the table operation of the fence schema; delete those that are
// older than the longest time in which a client may repeat itself.
func (g *Guard) Once(ctx context.Context, operation string, fn func(tx pgx.Tx) error) error {
	switch {
	case operation == "":
		return fmt.Errorf("pgguard: once: the operation has no name")
	case len(operation) > maxOperation:
		return fmt.Errorf("pgguard: once %.32q…: the operation's name has %d bytes, the limit is %d", operation, len(operation), maxOperation)
	case !utf8.ValidString(operation) || strings.ContainsRune(operation, 0):
		return fmt.Errorf("pgguard: once %q: the operation's name is not valid UTF-8 without NUL", operation)
	}
	t, first, err := g.begin(ctx, pgx.TxOptions{}, operation)
	if err != nil {
		return err
	}
	if !first {
		t.abandon(ctx)
		return nil
	}
	return t.run(ctx, fn)
}
