package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// A Request names one acquisition to a back end.
type Request struct {
	Resource string        // what is locked
	Nonce    string        // unique per acquisition; ownership is equality of nonces
	Holder   string        // a label for people
	TTL      time.Duration // how long the lock lives without renewal
	After    guard.Token   // Acquire grants a token greater than this one
}

// Validate reports the first part of r that is wrong for Acquire, AcquireInTurn, Renew
// and Join: the resource, the nonce or the holder is none of a [guard.Fence], the TTL is
// not from 1ms to [MaxTTL], or After is negative. The error wraps guard.ErrInvalid, and
// does not show the nonce.
func (r Request) Validate() error {
	switch err := (guard.Fence{Resource: r.Resource, Token: 1, Nonce: r.Nonce, Holder: r.Holder}).Validate(); {
	case err != nil:
		return err
	case r.TTL < time.Millisecond || r.TTL > MaxTTL:
		return fmt.Errorf("lock: a lock of %q with a TTL of %v is asked for, a TTL is from 1ms to %v: %w", r.Resource, r.TTL, MaxTTL, guard.ErrInvalid)
	case r.After < 0:
		return fmt.Errorf("lock: a token of %q above %d is asked for, tokens are positive; 0 asks for any: %w", r.Resource, r.After, guard.ErrInvalid)
	}
	return nil
}

// ValidateOwner is Validate for Release, Leave and Withdraw, which need the resource and
// the nonce alone.
func (r Request) ValidateOwner() error {
	return guard.Fence{Resource: r.Resource, Token: 1, Nonce: r.Nonce}.Validate()
}

// A Backend keeps locks: which nonce holds a resource, under which token, until
// when. It does each call at most a few times and never waits for a lock. What
// [Request.Validate] refuses, or [Request.ValidateOwner], it refuses with that error and
// does nothing, as do the optional interfaces. Its methods are safe for concurrent use.
// Package locktest checks an implementation.
type Backend interface {
	// Acquire takes the lock if it is free, and returns its token, greater than
	// r.After and than every earlier token of the resource. Called again with the
	// nonce that holds the lock it prolongs it and returns the same token, or a
	// new one if that is not greater than r.After. A lock of another nonce is
	// answered by a *HeldError. After any other error the lock may be held. A nonce
	// that was released is spent: its Acquire, coming late, may be refused.
	Acquire(ctx context.Context, r Request) (guard.Token, error)

	// Renew sets the remaining life of the lock to r.TTL if r.Nonce holds it, and
	// returns ErrLost otherwise. It never creates a lock.
	Renew(ctx context.Context, r Request) error

	// Release frees the lock if r.Nonce holds it, and returns ErrLost otherwise.
	Release(ctx context.Context, r Request) error
}

// A Waiter is a Backend that can tell when a lock may have become free.
type Waiter interface {
	// Watch returns a channel that receives as soon as the watch is in effect, since
	// a release before that may have been missed, and then after each release of a
	// hold of r.Resource that an Acquire or a Pass through this back end has got, or has
	// been refused for, since; from a back end that queues, after those that make it
	// r.Nonce's turn. So ask after each. (A release that nobody asked for need tell
	// nobody.) What is not received at once is merged into one. A lost wake-up costs
	// time and is no harm: the locker also asks by itself, now and then and when the
	// holder's TTL ends. stop ends the watch and must be called.
	Watch(r Request) (wake <-chan struct{}, stop func())
}

// A Passer is a Backend that can free a lock and grant it to the next contender in one
// step. A locker so brings a lock from one of its goroutines to the next in one round
// trip, in place of a release, a wake-up and an acquisition.
type Passer interface {
	// Pass is Release of r and then Acquire of next, a request for the same resource
	// without After, with nobody in between. It returns the token of next. The token is 0
	// if it was Release of r alone, with the wake-ups of one: because others than
	// next.Nonce were refused the lock while r.Nonce had it, who would starve if one
	// process kept it to itself; because members who joined stay; or because of how the
	// back end is configured.
	//
	// ErrLost, and no grant, if r.Nonce does not hold the lock; but a call that is
	// repeated returns the same token as long as next.Nonce has the lock. After any
	// other error each of the two may have happened. Releases of r and of next, in that
	// order, leave nothing behind then: without r a call that comes late grants nothing.
	Pass(ctx context.Context, r, next Request) (guard.Token, error)
}

// A Granter is a Backend whose releases can grant the lock to one that waits for it in
// another process, which saves that one a question and its answer.
type Granter interface {
	// AcquireWaiting is Acquire for one that has a watch of r.Resource and, if it is
	// refused, goes on waiting: a release may then grant it the lock, and wakes it. If
	// it stops waiting it calls Release.
	AcquireWaiting(ctx context.Context, r Request) (guard.Token, error)

	// Claim returns the token of such a grant to r.Nonce, once, and until when the lock
	// lives unless it is renewed, which may be much less than r.TTL. ok is false if
	// no grant is known, or if it is over. Claim asks nobody.
	Claim(r Request) (token guard.Token, until time.Time, ok bool)
}

// A Joiner is a Backend whose locks several processes may hold together under one
// fence: reentrancy by passing the token.
type Joiner interface {
	// Join adds member to the lock that r.Nonce holds and prolongs it to r.TTL.
	// ErrLost if r.Nonce does not hold the lock. Repeating it changes nothing.
	Join(ctx context.Context, r Request, member string) error

	// Leave removes member; the last one out frees the lock. (The one who
	// acquired leaves by Release.) ErrLost if member is not in it.
	Leave(ctx context.Context, r Request, member string) error
}

// An Inspector is a Backend that can say who holds what.
type Inspector interface {
	// Inspect returns the lock of resource; without Members it is free.
	Inspect(ctx context.Context, resource string) (Holding, error)
}

// A Holding describes a held lock. It has no nonce, which would let its reader
// release the lock.
type Holding struct {
	Resource  string
	Token     guard.Token
	Holder    string
	Members   int           // the holder and those who joined
	Remaining time.Duration // until it expires without renewal
}

// A BatchRenewer is a Backend that renews many locks in few round trips.
type BatchRenewer interface {
	// RenewAll is Renew for each request; errs[i] is the outcome of requests[i].
	RenewAll(ctx context.Context, requests []Request) (errs []error)
}

// A Bounded back end can do without the goroutine on which the locker otherwise
// makes every call, because a client that hangs would hang its caller.
type Bounded interface {
	// Bounded reports whether every call returns by itself within a few seconds of
	// the end of its context, whatever the server and the network do. The locker
	// goes back to goroutines, and so to the very end of the context, while the
	// last call got no answer.
	Bounded() bool
}

// A FairBackend is a Backend with a queue, for [WithFair].
type FairBackend interface {
	// AcquireInTurn is Acquire for a contender that queues: the first call puts
	// r.Nonce in the queue of the resource, and the lock is granted to the first
	// in it. A contender that does not call again within patience has gone.
	AcquireInTurn(ctx context.Context, r Request, patience time.Duration) (guard.Token, error)

	// Withdraw takes r.Nonce out of the queue.
	Withdraw(ctx context.Context, r Request) error
}
