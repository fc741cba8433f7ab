package workload

import (
	"context"
	"time"

	popular "github.com/bsm/redislock"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

const (
	retryWait    = 20 * time.Millisecond
	releaseBound = 2 * time.Second
	callBound    = 30 * time.Second // of an operation that does not look at its lease
)

// locks is what a worker locks with.
type locks interface {
	acquire(ctx context.Context, resources ...string) (hold, error)
}

// A hold is a lock that is held.
type hold struct {
	fences  []guard.Fence
	ctx     context.Context // ends with the lease
	release func(ctx context.Context) error
}

func (p *program) openLocks() (closing func(), err error) {
	if p.Variant == PopularLock {
		p.locks = popularLocks{p, popular.New(p.rdb)}
		return func() {}, nil
	}
	backend, err := redislock.New(p.rdb, redislock.WithPrefix(p.Prefix))
	if err != nil {
		return nil, err
	}
	locker, err := lock.New(backend, lock.WithTTL(p.TTL), lock.WithRetryWait(retryWait), lock.WithHolder(p.Name),
		lock.WithGuards(&gate{p}), lock.WithObserver(p.observe))
	if err != nil {
		return nil, err
	}
	p.locks = leases{locker}
	return func() { _ = locker.Close() }, nil // of what it could not release the TTL takes care
}

type leases struct{ *lock.Locker }

func (l leases) acquire(ctx context.Context, resources ...string) (hold, error) {
	lease, err := l.AcquireAll(ctx, resources...)
	if err != nil {
		return hold{}, err
	}
	return hold{lease.Fences(), lease.Context(), lease.Release}, nil
}

// A gate is the guard of the locker: it reports the steps around the raise.
type gate struct{ *program }

func (g *gate) Raise(ctx context.Context, f guard.Fence) error {
	g.step(Granted, about(f))
	if !g.current.Obedient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), callBound)
		defer cancel()
	}
	if err := g.raise(ctx, f); err != nil {
		return err
	}
	g.step(Raised, about(f))
	return nil
}

// raise raises a fence, in the variants that have one, and reports the call.
func (p *program) raise(ctx context.Context, f guard.Fence) (err error) {
	if p.store.guard() == nil {
		return nil
	}
	p.call(CallRaise, func(r *Report) {
		err = p.store.guard().Raise(ctx, f)
		r.Outcome = outcomeOf(err, true)
		r.explain(err)
	}, history.Row{Resource: f.Resource, Token: f.Token, Nonce: f.Nonce})
	return err
}

// popularLocks locks as most services do: with a value that expires, and nothing in
// the store.
type popularLocks struct {
	*program
	client *popular.Client
}

func (l popularLocks) acquire(ctx context.Context, resources ...string) (hold, error) {
	resource := resources[0] // the controls have one at a time
	held, err := l.client.Obtain(ctx, l.Prefix+":"+resource, l.TTL, &popular.Options{RetryStrategy: popular.LinearBackoff(retryWait)})
	if err != nil {
		return hold{}, err
	}
	f := guard.Fence{Resource: resource, Nonce: held.Token(), Holder: l.Name}
	l.step(Granted, about(f))
	return hold{[]guard.Fence{f}, ctx, held.Release}, nil
}
