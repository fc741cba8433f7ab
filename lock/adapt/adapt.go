// Package adapt makes a lock back end of the locks that a program has already:
// redsync, bsm/redislock, or any pair of functions that lock and unlock. What they
// lack is the token, which comes from a sequencer:
//
//	backend, err := adapt.New(func(resource, nonce string, ttl time.Duration) adapt.Mutex {
//		return rs.NewMutex(resource, redsync.WithExpiry(ttl), redsync.WithValue(nonce),
//			redsync.WithGenValueFunc(func() (string, error) { return nonce, nil }))
//	}, adapt.WithRefused(func(err error) bool {
//		_, taken := errors.AsType[*redsync.ErrTaken](err)
//		return taken || errors.Is(err, redsync.ErrLockAlreadyExpired)
//	}))
//	locker, err := lock.New(backend, lock.WithSequencer(seq), lock.WithGuards(store))
//
// Processes that still use the other library by itself are excluded as before, but
// not fenced. Its options that retry do nothing here: the locker waits. Leave out
// redsync.WithSetNXOnExtend, with which a renewal takes a lock that was lost.
package adapt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A Mutex is a lock of the other library for one nonce, which is what tells its
// owner from others: not the value but what is stored under the lock's name has to
// be compared. *redsync.Mutex is one. The back end makes one call of it at a time.
type Mutex interface {
	// TryLockContext takes the lock, if it is free, for the TTL that the Mutex was
	// made with, and does not wait for it. If another has it the error is
	// lock.ErrHeld or one that [WithRefused] knows.
	TryLockContext(ctx context.Context) error

	// ExtendContext sets the remaining life of the lock to the TTL if it is still
	// this Mutex's own. Otherwise it creates nothing and returns false, with no
	// error or with lock.ErrLost or one that WithRefused knows.
	ExtendContext(ctx context.Context) (bool, error)

	// UnlockContext frees the lock if it is this Mutex's own, and answers as
	// ExtendContext does. It is also called when the outcome of TryLockContext is
	// not known, and then has to free what that may have taken.
	UnlockContext(ctx context.Context) (bool, error)
}

// A Backend is a [lock.Backend] on the locks of another library. It has no tokens:
// a locker on it needs [lock.WithSequencer], and refuses to acquire without. It is
// safe for concurrent use.
//
// It is no [lock.Waiter]: waiters poll, see [lock.WithRetryWait]. A *lock.HeldError
// names the holder, and for how long, if that is in the same process.
type Backend struct {
	mutex   func(resource, nonce string, ttl time.Duration) Mutex
	refused func(error) bool
	grants  grants
}

var _ lock.Backend = (*Backend)(nil)

// An Option configures a [Backend].
type Option func(*Backend)

// WithRefused names the errors by which the other library says that the lock is
// another's, or no longer ours. Every other error leaves the outcome unknown: a
// lock that is held is then reported as a failure instead of being waited for.
// Defaults to none but lock.ErrHeld and lock.ErrLost.
func WithRefused(refused func(error) bool) Option {
	return func(b *Backend) { b.refused = refused }
}

// New returns a back end whose locks mutex makes. A Mutex is kept from its
// TryLockContext to its UnlockContext; another one of the same nonce is asked for
// when the TTL changes, which under one locker it does not.
func New(mutex func(resource, nonce string, ttl time.Duration) Mutex, opts ...Option) (*Backend, error) {
	if mutex == nil {
		return nil, errors.New("adapt: the function that makes a mutex is nil")
	}
	b := &Backend{mutex: mutex, refused: func(error) bool { return false }, grants: grants{of: make(map[string][]*grant)}}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("adapt: an option is nil")
		}
		opt(b)
	}
	if b.refused == nil {
		return nil, errors.New("adapt: the function of WithRefused is nil; leave the option out if the library returns lock.ErrHeld and lock.ErrLost")
	}
	return b, nil
}

// Acquire implements [lock.Backend], except that its token is 0 and that r.After is
// none of its business. Called again by the process that called it first it
// prolongs the lock; from another process the same nonce is whatever the library
// makes of it.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	g, known := b.grants.open(r)
	err := g.use(ctx, func() error {
		if known {
			// A second TryLock of redsync would find its own value, fail, and
			// free the lock that it has.
			if err := b.extend(ctx, g, r); !errors.Is(err, lock.ErrLost) {
				return err
			}
		}
		return b.tryLock(ctx, g, r)
	})
	if errors.Is(err, lock.ErrHeld) {
		b.grants.close(g)
		return 0, b.grants.holder(r.Resource)
	}
	return 0, wrap("acquire", r, err)
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, r lock.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	g, _ := b.grants.open(r)
	err := g.use(ctx, func() error { return b.extend(ctx, g, r) })
	if errors.Is(err, lock.ErrLost) {
		b.grants.close(g)
	}
	return wrap("renew", r, err)
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	g, _ := b.grants.open(r)
	defer b.grants.close(g)
	return wrap("release", r, g.use(ctx, func() error {
		ok, err := b.of(g, r).UnlockContext(ctx)
		return b.outcome(ok, err)
	}))
}

func (b *Backend) tryLock(ctx context.Context, g *grant, r lock.Request) error {
	sent := time.Now()
	err := b.of(g, r).TryLockContext(ctx)
	switch {
	case err == nil:
		b.grants.prolong(g, r, sent)
	case errors.Is(err, lock.ErrHeld), b.refused(err):
		return lock.ErrHeld
	}
	return err
}

func (b *Backend) extend(ctx context.Context, g *grant, r lock.Request) error {
	sent := time.Now()
	err := b.outcome(b.of(g, r).ExtendContext(ctx))
	if err == nil {
		b.grants.prolong(g, r, sent)
	}
	return err
}

// outcome tells not ours from not known.
func (b *Backend) outcome(ok bool, err error) error {
	switch {
	case ok:
		return nil
	case err == nil, errors.Is(err, lock.ErrLost), b.refused(err):
		return lock.ErrLost
	}
	return err
}

// of returns the mutex of g for the TTL of r.
func (b *Backend) of(g *grant, r lock.Request) Mutex {
	if g.mutex == nil || g.ttl != r.TTL {
		g.mutex, g.ttl = b.mutex(r.Resource, r.Nonce, r.TTL), r.TTL
	}
	return g.mutex
}

func wrap(what string, r lock.Request, err error) error {
	if err == nil || errors.Is(err, lock.ErrLost) {
		return err
	}
	return fmt.Errorf("adapt: %s %q: %w", what, r.Resource, err)
}
