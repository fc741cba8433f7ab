package locktest_test

import (
	"context"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// A broken back end has every optional interface, with one method exchanged.
type broken struct {
	*memlock.Backend

	acquire  func(ctx context.Context, b *memlock.Backend, r lock.Request) (guard.Token, error)
	join     func(ctx context.Context, b *memlock.Backend, r lock.Request, member string) error
	leave    func(ctx context.Context, b *memlock.Backend, r lock.Request, member string) error
	inspect  func(ctx context.Context, b *memlock.Backend, resource string) (lock.Holding, error)
	renewAll func(ctx context.Context, b *memlock.Backend, requests []lock.Request) []error
	watch    func(b *memlock.Backend, r lock.Request) (<-chan struct{}, func())
	inTurn   func(ctx context.Context, b *memlock.Backend, r lock.Request, patience time.Duration) (guard.Token, error)
	withdraw func(ctx context.Context, b *memlock.Backend, r lock.Request) error
	pass     func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error)
}

func (b broken) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if b.acquire != nil {
		return b.acquire(ctx, b.Backend, r)
	}
	return b.Backend.Acquire(ctx, r)
}

func (b broken) Join(ctx context.Context, r lock.Request, member string) error {
	if b.join != nil {
		return b.join(ctx, b.Backend, r, member)
	}
	return b.Backend.Join(ctx, r, member)
}

func (b broken) Leave(ctx context.Context, r lock.Request, member string) error {
	if b.leave != nil {
		return b.leave(ctx, b.Backend, r, member)
	}
	return b.Backend.Leave(ctx, r, member)
}

func (b broken) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	if b.inspect != nil {
		return b.inspect(ctx, b.Backend, resource)
	}
	return b.Backend.Inspect(ctx, resource)
}

func (b broken) RenewAll(ctx context.Context, requests []lock.Request) (errs []error) {
	if b.renewAll != nil {
		return b.renewAll(ctx, b.Backend, requests)
	}
	for _, r := range requests {
		errs = append(errs, b.Renew(ctx, r))
	}
	return errs
}

func (b broken) Watch(r lock.Request) (<-chan struct{}, func()) {
	if b.watch != nil {
		return b.watch(b.Backend, r)
	}
	return b.Backend.Watch(r)
}

func (b broken) AcquireInTurn(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	if b.inTurn != nil {
		return b.inTurn(ctx, b.Backend, r, patience)
	}
	return b.Backend.AcquireInTurn(ctx, r, patience)
}

func (b broken) Withdraw(ctx context.Context, r lock.Request) error {
	if b.withdraw != nil {
		return b.withdraw(ctx, b.Backend, r)
	}
	return b.Backend.Withdraw(ctx, r)
}

func (b broken) Pass(ctx context.Context, r, next lock.Request) (guard.Token, error) {
	if b.pass != nil {
		return b.pass(ctx, b.Backend, r, next)
	}
	return b.Backend.Pass(ctx, r, next)
}
