package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrStale: the fence was superseded by a later one. Never retryable with
	// this fence; acquire the lock again.
	ErrStale = errors.New("stale fence")

	// ErrConflict: another acquisition was handed the same token, so the
	// sequencer has forgotten. errors.Is(err, ErrStale) holds too.
	ErrConflict = errors.New("conflicting fence")

	// ErrNotRaised: the store has no fence for the resource, or an earlier one.
	ErrNotRaised = errors.New("fence not raised")

	// ErrNoFence: the context carries no fence for a guarded write.
	ErrNoFence = errors.New("no fence")

	// ErrBlocked: raising waited too long for a transaction of an earlier fence.
	ErrBlocked = errors.New("raise blocked")

	// ErrCommitUnknown: the commit was sent and its outcome could not be learned.
	ErrCommitUnknown = errors.New("commit outcome unknown")

	// ErrUnguarded: a write that its guard has no way to fence. Nothing was written.
	ErrUnguarded = errors.New("unguarded write")

	// ErrInvalid: a fence, a token, a resource name or a lock.Request that no store would take.
	ErrInvalid = errors.New("invalid fence")
)

// A Guard is a store that keeps the current fence of each resource.
type Guard interface {
	// Raise makes f the current fence of its resource, before the first read of
	// the acquisition. It is safe to repeat with the same fence, and refuses an
	// invalid one with ErrInvalid. It returns a *StaleError where the store has
	// seen a later fence, and ErrBlocked where a transaction of an earlier one
	// would not end in time.
	Raise(ctx context.Context, f Fence) error
}

// StaleError says which fence was refused and which one is current. It is
// [ErrStale], and also [ErrConflict] where both have one token.
type StaleError struct {
	Held    Fence     // the fence that was refused
	Current Fence     // the fence in force; parts that the store does not keep are empty
	Since   time.Time // when Current was raised, by the store's clock; zero if unknown
}

func (e *StaleError) Error() string {
	var b strings.Builder
	if e.conflict() {
		fmt.Fprintf(&b, "guard: token %d of %q was handed out twice", e.Held.Token, e.Held.Resource)
	} else {
		fmt.Fprintf(&b, "guard: fence of %q is stale", e.Held.Resource)
	}
	fmt.Fprintf(&b, ": %s holds token %d, superseded by token %d", holder(e.Held), e.Held.Token, e.Current.Token)
	if e.Current.Holder != "" {
		fmt.Fprintf(&b, " of %s", e.Current.Holder)
	}
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.UTC().Format(time.RFC3339Nano))
	}
	b.WriteString("; nothing was written, stop this work and acquire the lock again")
	return b.String()
}

// Is reports whether the error has the meaning of target.
func (e *StaleError) Is(target error) bool {
	return target == ErrStale || target == ErrConflict && e.conflict()
}

func (e *StaleError) conflict() bool { return e.Held.Token == e.Current.Token }

func holder(f Fence) string {
	if f.Holder == "" {
		return "an unnamed holder"
	}
	return f.Holder
}

// NotRaisedError says which fence the store did not know. It is [ErrNotRaised].
type NotRaisedError struct {
	Held    Fence // the fence that was refused
	Current Fence // the earlier fence in force, or the zero Fence if there is none
}

func (e *NotRaisedError) Error() string {
	state := "the store has no fence of it"
	if e.Current.Token != 0 {
		state = fmt.Sprintf("the store is at token %d", e.Current.Token)
	}
	return fmt.Sprintf("guard: fence of %q is not raised: %s holds token %d, but %s; "+
		"nothing was written, raise the fence in this database first (give the guard to the locker with lock.WithGuards)",
		e.Held.Resource, holder(e.Held), e.Held.Token, state)
}

// Is reports whether target is [ErrNotRaised].
func (e *NotRaisedError) Is(target error) bool { return target == ErrNotRaised }
