package locktest

import (
	"context"
	"sync"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// An Op names a method of a back end.
type Op string

// The methods that a [Fake] can make fail.
const (
	Acquire Op = "acquire"
	Renew   Op = "renew"
	Release Op = "release"
	Join    Op = "join"
	Leave   Op = "leave"
)

// A Fake is a back end in memory that can expire, hang, fail, lose replies and
// forget, for tests of time and policy under testing/synctest. It polls: it is no
// [lock.Waiter].
type Fake struct {
	mu     sync.Mutex
	inner  *memlock.Backend
	nonces map[string]string   // of the last grant per resource
	joined map[string][]string // members that joined that grant
	calls  map[Op]int
	before map[Op]func(ctx context.Context, r lock.Request) error
	after  map[Op]func(ctx context.Context, r lock.Request) error
}

// NewFake returns a fake without any lock.
func NewFake() *Fake {
	return &Fake{
		inner:  memlock.New(),
		nonces: make(map[string]string),
		joined: make(map[string][]string),
		calls:  make(map[Op]int),
		before: make(map[Op]func(context.Context, lock.Request) error),
		after:  make(map[Op]func(context.Context, lock.Request) error),
	}
}

// Before makes each op run hook first, and fail with its error without effect. A
// nil hook ends that.
func (f *Fake) Before(op Op, hook func(ctx context.Context, r lock.Request) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before[op] = hook
}

// After makes each op run hook when it has taken effect, and answer with its
// error: a lost reply. A nil hook ends that.
func (f *Fake) After(op Op, hook func(ctx context.Context, r lock.Request) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after[op] = hook
}

// Hang makes each op wait, without a look at its context, until resume is called.
func (f *Fake) Hang(ops ...Op) (resume func()) {
	gate := make(chan struct{})
	for _, op := range ops {
		f.Before(op, func(context.Context, lock.Request) error { <-gate; return nil })
	}
	return sync.OnceFunc(func() {
		for _, op := range ops {
			f.Before(op, nil)
		}
		close(gate)
	})
}

// Expire frees the lock of resource, whoever shares it, as if its TTL had ended.
func (f *Fake) Expire(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := lock.Request{Resource: resource, Nonce: f.nonces[resource]}
	for _, member := range append(f.joined[resource], r.Nonce) {
		_ = f.inner.Leave(context.Background(), r, member) // or it has left already
	}
}

// Forget drops every lock and counter, as FLUSHALL does.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inner = memlock.New()
}

// Calls returns how often op was called.
func (f *Fake) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Acquire implements [lock.Backend].
func (f *Fake) Acquire(ctx context.Context, r lock.Request) (token guard.Token, err error) {
	err = f.do(ctx, Acquire, r, func(b *memlock.Backend) error {
		token, err = b.Acquire(context.WithoutCancel(ctx), r)
		if err == nil {
			f.mu.Lock()
			if f.nonces[r.Resource] != r.Nonce {
				f.nonces[r.Resource], f.joined[r.Resource] = r.Nonce, nil
			}
			f.mu.Unlock()
		}
		return err
	})
	return token, err
}

// Renew implements [lock.Backend].
func (f *Fake) Renew(ctx context.Context, r lock.Request) error {
	return f.do(ctx, Renew, r, func(b *memlock.Backend) error { return b.Renew(context.WithoutCancel(ctx), r) })
}

// Release implements [lock.Backend].
func (f *Fake) Release(ctx context.Context, r lock.Request) error {
	return f.do(ctx, Release, r, func(b *memlock.Backend) error { return b.Release(context.WithoutCancel(ctx), r) })
}

// Join implements [lock.Joiner].
func (f *Fake) Join(ctx context.Context, r lock.Request, member string) error {
	return f.do(ctx, Join, r, func(b *memlock.Backend) error {
		err := b.Join(context.WithoutCancel(ctx), r, member)
		if err == nil {
			f.mu.Lock()
			f.joined[r.Resource] = append(f.joined[r.Resource], member)
			f.mu.Unlock()
		}
		return err
	})
}

// Leave implements [lock.Joiner].
func (f *Fake) Leave(ctx context.Context, r lock.Request, member string) error {
	return f.do(ctx, Leave, r, func(b *memlock.Backend) error { return b.Leave(context.WithoutCancel(ctx), r, member) })
}

// Inspect implements [lock.Inspector].
func (f *Fake) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	f.mu.Lock()
	b := f.inner
	f.mu.Unlock()
	return b.Inspect(ctx, resource)
}

func (f *Fake) do(ctx context.Context, op Op, r lock.Request, call func(*memlock.Backend) error) error {
	f.mu.Lock()
	f.calls[op]++
	before := f.before[op]
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if before != nil {
		if err := before(ctx, r); err != nil {
			return err
		}
	}
	f.mu.Lock()
	b, after := f.inner, f.after[op]
	f.mu.Unlock()
	err := call(b)
	if err == nil && after != nil {
		return after(ctx, r)
	}
	return err
}
