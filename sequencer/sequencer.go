// Package sequencer is about where tokens come from.
//
// A sequencer only proposes: a store that raises a fence strictly refuses a token
// that is not greater than its own. So a sequencer that forgets (Redis after a
// failover) costs a holder a repair, by Next with the store's token as after, and
// costs the data nothing.
package sequencer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/go-fencing/fencing/guard"
)

// A Sequencer hands out the tokens of resources. It is safe for concurrent use.
type Sequencer interface {
	// Next returns a token greater than after and than every token it returned
	// before for resource. It may leave out tokens, as after a lost reply. after
	// is the greatest token that the caller has seen, 0 for none.
	//
	// It returns guard.ErrInvalid for a resource that no store would take or a
	// negative after, ErrJump if after is implausibly far ahead, ErrExhausted
	// if there is no greater token. After these no token is used up.
	Next(ctx context.Context, resource string, after guard.Token) (guard.Token, error)
}

var (
	// ErrExhausted: the counter is at 2^63-1. An operator must rebase the resource,
	// with "fencectl rebase".
	ErrExhausted = errors.New("tokens exhausted")

	// ErrJump: after is implausibly far ahead of the counter, so the fence that
	// it was read from is probably poisoned. An operator must look at that fence
	// and rebase the resource, with "fencectl rebase".
	ErrJump = errors.New("implausible jump")
)

// DefaultMaxJump is how far after may be ahead of a counter: 2^56.
//
// Without a bound, one fence at 2^63-1 in a store, written by a bug or by hand,
// would drag the counter there and end the resource for good. 2^56 is less than a
// hundredth of all tokens, so that a mistake within the bound does no lasting harm.
// It is also 40 times the number of microseconds since 1970, so that a counter
// that starts again at 0, or takes over from a sequencer that counts the time in
// microseconds or milliseconds, finds its way back. Nanoseconds need a greater one.
const DefaultMaxJump guard.Token = 1 << 56

// Validate is the first step of every Next: it returns guard.ErrInvalid for a
// resource that no store would take, or a negative after.
func Validate(resource string, after guard.Token) error {
	if err := guard.ValidateResource(resource); err != nil {
		return err
	}
	if after < 0 {
		return fmt.Errorf("sequencer: next %q: a token above %d is asked for, tokens are positive: %w", resource, after, guard.ErrInvalid)
	}
	return nil
}

// Advance returns the token after last, the greatest one handed out so far, and
// after: the rule of every Next. It returns ErrJump if after is more than maxJump
// ahead of last, and ErrExhausted if there is no greater token.
func Advance(last, after, maxJump guard.Token) (guard.Token, error) {
	if after-last > maxJump {
		return 0, fmt.Errorf("a token above %d is asked for, more than %d ahead of the counter at %d; "+
			"the fence in the store is probably poisoned, an operator must run \"fencectl rebase\": %w", after, maxJump, last, ErrJump)
	}
	if max(last, after) == math.MaxInt64 {
		return 0, fmt.Errorf("the counter is at %d, a token above %d is asked for; an operator must run \"fencectl rebase\": %w", last, after, ErrExhausted)
	}
	return max(last, after) + 1, nil
}
