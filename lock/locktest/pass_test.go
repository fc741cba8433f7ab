package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

func TestBrokenPassesAreCaught(t *testing.T) {
	t.Parallel()
	type pass = func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error)
	next := func(change func(*lock.Request)) pass {
		return func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			change(&next)
			return b.Pass(ctx, r, next)
		}
	}
	const (
		right  = "Pass"
		lost   = "S27_ALostLockIsNotPassed"
		others = "PassLeavesItToOthersWhoWait"
		member = "PassByAMember"
		bad    = "BadRequestsAreRefused"
	)
	for name, c := range map[string]struct {
		pass
		caughtBy string
	}{
		"it only releases": {func(ctx context.Context, b *memlock.Backend, r, _ lock.Request) (guard.Token, error) {
			return 0, b.Release(ctx, r)
		}, right},
		"it grants the lock and keeps it": {func(ctx context.Context, b *memlock.Backend, r, _ lock.Request) (guard.Token, error) {
			h, err := b.Inspect(ctx, r.Resource)
			return h.Token + 5000, err
		}, right},
		"it has the token of the one before": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			token, err := b.Pass(ctx, r, next)
			return min(token, 1), err
		}, right},
		"a repeated one is refused": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			if err := b.Join(ctx, lock.Request{Resource: r.Resource, Nonce: r.Nonce, TTL: time.Minute}, r.Nonce); errors.Is(err, lock.ErrLost) {
				return 0, err
			}
			return b.Pass(ctx, r, next)
		}, right},
		"a repeated one gets a new token": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			h, err := b.Inspect(ctx, r.Resource)
			next.After = max(next.After, h.Token)
			token, passed := b.Pass(ctx, r, next)
			return token, cmp.Or(err, passed)
		}, right},
		"the TTL is another's":    {next(func(next *lock.Request) { next.TTL = time.Second }), right},
		"the holder is not noted": {next(func(next *lock.Request) { next.Holder = "somebody" }), right},
		"the nonce is another's":  {next(func(next *lock.Request) { next.Nonce += "x" }), right},
		"a dead context is not noticed": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			return b.Pass(context.WithoutCancel(ctx), r, next)
		}, right},

		"a lost lock is acquired": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			token, err := b.Pass(ctx, r, next)
			if errors.Is(err, lock.ErrLost) {
				if token, acquired := b.Acquire(ctx, next); acquired == nil {
					return token, nil
				}
			}
			return token, err
		}, lost},
		"a lost lock is acquired in silence": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			token, err := b.Pass(ctx, r, next)
			if errors.Is(err, lock.ErrLost) {
				next.TTL = 24 * time.Hour
				_, _ = b.Acquire(ctx, next)
			}
			return token, err
		}, lost},
		"a lost lock is nobody's fault": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			token, err := b.Pass(ctx, r, next)
			if errors.Is(err, lock.ErrLost) {
				return 0, nil
			}
			return token, err
		}, lost},

		"others are passed over": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			if err := b.Release(ctx, r); err != nil {
				return 0, err
			}
			return b.Acquire(ctx, next)
		}, others},
		"members are passed over": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			_ = b.Leave(ctx, r, "second")
			return b.Pass(ctx, r, next)
		}, member},
		"members lose the lock": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			token, err := b.Pass(ctx, r, next)
			if token == 0 && err == nil {
				_ = b.Leave(ctx, r, "second")
			}
			return token, err
		}, member},
		"one of several members stays": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			if h, _ := b.Inspect(ctx, r.Resource); h.Members > 1 {
				return 0, nil
			}
			return b.Pass(ctx, r, next)
		}, member},

		"it is passed to a bad request": {next(func(next *lock.Request) { next.After = max(next.After, 0) }), bad},
		"it is passed by a bad request": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			if r.ValidateOwner() != nil {
				return 0, lock.ErrLost
			}
			return b.Pass(ctx, r, next)
		}, bad},
		"it is refused for a bad request and freed": {func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
			if err := next.Validate(); err != nil {
				_ = b.Release(ctx, r)
				return 0, err
			}
			return b.Pass(ctx, r, next)
		}, bad},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireCaught(t, func() lock.Backend { return broken{Backend: memlock.New(), pass: c.pass} }, c.caughtBy)
		})
	}

	t.Run("others are not woken", func(t *testing.T) {
		t.Parallel()
		requireCaught(t, func() lock.Backend {
			var watched <-chan struct{}
			return broken{
				Backend: memlock.New(),
				watch: func(b *memlock.Backend, r lock.Request) (<-chan struct{}, func()) {
					wake, stop := b.Watch(r)
					watched = wake
					return wake, stop
				},
				pass: func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
					defer func() {
						select {
						case <-watched:
						default:
						}
					}()
					return b.Pass(ctx, r, next)
				},
			}
		}, others)
	})
	for name, forgets := range map[string]bool{"who asked is one of many": true, "one refusal counts for ever": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireCaught(t, func() lock.Backend {
				var mu sync.Mutex
				awaited, refused := false, ""
				return broken{
					Backend: memlock.New(),
					acquire: func(ctx context.Context, b *memlock.Backend, r lock.Request) (guard.Token, error) {
						mu.Lock()
						defer mu.Unlock()
						token, err := b.Acquire(ctx, r)
						switch {
						case errors.Is(err, lock.ErrHeld):
							awaited, refused = true, cmp.Or(refused, r.Nonce)
						case forgets:
							awaited, refused = false, ""
						}
						return token, err
					},
					pass: func(ctx context.Context, b *memlock.Backend, r, next lock.Request) (guard.Token, error) {
						mu.Lock()
						defer mu.Unlock()
						if awaited && (forgets || refused != next.Nonce) {
							return 0, b.Release(ctx, r)
						}
						return b.Pass(ctx, r, next)
					},
				}
			}, others)
		})
	}
}
