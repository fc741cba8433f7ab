package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-fencing/fencing/guard"
)

var (
	// ErrHeld: another holder has the lock. The error is a *HeldError.
	ErrHeld = errors.New("lock is held")

	// ErrLost: the lease ended before it was released, or the lock belongs to
	// another. From a lease the error is a *LostError.
	ErrLost = errors.New("lease is lost")

	// ErrReleased: the lease was released already.
	ErrReleased = errors.New("lease is released")

	// ErrUnknown: the back end did not say whether the lock was released. It
	// frees itself when its TTL ends.
	ErrUnknown = errors.New("release outcome unknown")

	// ErrClosed: the locker is closed.
	ErrClosed = errors.New("locker is closed")
)

// HeldError says who has the lock. It is [ErrHeld].
type HeldError struct {
	Resource  string
	Holder    string
	Remaining time.Duration // until the lock expires unless it is renewed; 0 if unknown
	Silent    bool          // its release wakes nobody, see [Waiter]
}

func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q is held by ", e.Resource)
	if e.Holder == "" {
		b.WriteString("an unnamed holder")
	} else {
		b.WriteString(e.Holder)
	}
	if e.Remaining > 0 {
		fmt.Fprintf(&b, ", expires in %v unless renewed", e.Remaining.Round(time.Millisecond))
	}
	return b.String()
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says how a lease ended before it was released. It is [ErrLost].
type LostError struct {
	Fence   guard.Fence
	Overran time.Duration // how long after its deadline the lease was released; 0 before
	Cause   error
}

func (e *LostError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock: lease of %q (token %d) is lost", e.Fence.Resource, e.Fence.Token)
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	if e.Overran > 0 {
		fmt.Fprintf(&b, "; it overran its deadline by %v", e.Overran.Round(time.Microsecond))
	}
	return b.String()
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// errNoAnswer: to a release.
var errNoAnswer = fmt.Errorf("no answer within %v: %w", releaseTimeout, context.DeadlineExceeded)

// The causes of a loss.
var (
	errDeadline     = errors.New("no renewal succeeded before its deadline")
	errNotRenewed   = errors.New("its deadline passed without renewal")
	errRenewalHangs = fmt.Errorf("the renewal was given up: %w", context.DeadlineExceeded)
	errMaxHold      = errors.New("it reached the longest time a lease may be held")
	errNotOurs      = errors.New("the back end no longer has it, or has it for another holder")
)
