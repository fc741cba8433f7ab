// Package memlock is a lock back end in the memory of one process: for programs
// of one process, for tests, and as the reference of what a back end does.
package memlock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

// A Backend keeps locks in memory. It is safe for concurrent use. It implements
// [lock.Backend] and all of its optional interfaces.
type Backend struct {
	mu       sync.Mutex
	last     guard.Token // of every resource: one counter, so that a free resource leaves nothing behind
	locks    map[string]*held
	sweep    int // the number of locks at which expired ones are looked for
	queues   map[string][]contender
	watchers map[string][]watcher
}

type held struct {
	nonce, holder string
	token         guard.Token
	expires       time.Time
	members       []string // the nonce of the one who acquired, and those who joined
	refused       []string // nonces that were refused it: two at most, which are enough to find another than a given one
}

type contender struct {
	nonce string
	until time.Time // when it is presumed gone
}

type watcher struct {
	nonce string
	wake  chan struct{}
}

// New returns a back end without any lock.
func New() *Backend {
	return &Backend{
		locks:    make(map[string]*held),
		queues:   make(map[string][]contender),
		watchers: make(map[string][]watcher),
	}
}

// Bounded implements [lock.Bounded]: nothing here waits.
func (b *Backend) Bounded() bool { return true }

// Acquire implements [lock.Backend].
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acquire(ctx, r)
}

func (b *Backend) acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	h := b.live(r.Resource)
	if h != nil && h.nonce != r.Nonce {
		if len(h.refused) < 2 && !slices.Contains(h.refused, r.Nonce) {
			h.refused = append(h.refused, r.Nonce)
		}
		return 0, &lock.HeldError{Resource: r.Resource, Holder: h.holder, Remaining: time.Until(h.expires)}
	}
	if h == nil {
		b.forget()
		h = &held{nonce: r.Nonce, holder: r.Holder, members: []string{r.Nonce}}
	}
	if h.token == 0 || h.token <= r.After {
		token, err := b.next(r)
		if err != nil {
			return 0, err
		}
		h.token = token
	}
	h.expires = time.Now().Add(r.TTL)
	b.locks[r.Resource] = h
	return h.token, nil
}

func (b *Backend) next(r lock.Request) (guard.Token, error) {
	token, err := sequencer.Advance(b.last, r.After, sequencer.DefaultMaxJump)
	if err != nil {
		return 0, fmt.Errorf("memlock: acquire %q: %w", r.Resource, err)
	}
	b.last = token
	return token, nil
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, r lock.Request) error { return b.Join(ctx, r, r.Nonce) }

// Join implements [lock.Joiner].
func (b *Backend) Join(ctx context.Context, r lock.Request, member string) error {
	if err := r.Validate(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	h := b.live(r.Resource)
	if h == nil || h.nonce != r.Nonce {
		return lock.ErrLost
	}
	if member != r.Nonce && !slices.Contains(h.members, member) {
		h.members = append(h.members, member)
	}
	// Members count on the longest TTL among them.
	if until := time.Now().Add(r.TTL); len(h.members) == 1 || until.After(h.expires) {
		h.expires = until
	}
	return nil
}

// Release implements [lock.Backend].
func (b *Backend) Release(ctx context.Context, r lock.Request) error { return b.Leave(ctx, r, r.Nonce) }

// Leave implements [lock.Joiner].
func (b *Backend) Leave(ctx context.Context, r lock.Request, member string) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	freed, err := b.leave(r, member)
	if freed {
		b.wake(r.Resource)
	}
	return err
}

func (b *Backend) leave(r lock.Request, member string) (freed bool, err error) {
	h := b.live(r.Resource)
	if h == nil || h.nonce != r.Nonce {
		return false, lock.ErrLost
	}
	i := slices.Index(h.members, member)
	if i < 0 {
		return false, lock.ErrLost
	}
	if h.members = slices.Delete(h.members, i, i+1); len(h.members) > 0 {
		return false, nil
	}
	delete(b.locks, r.Resource)
	return true, nil
}

// Pass implements [lock.Passer].
func (b *Backend) Pass(ctx context.Context, r, next lock.Request) (guard.Token, error) {
	if err := cmp.Or(r.ValidateOwner(), next.Validate()); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	h := b.live(r.Resource)
	if h != nil && h.nonce == next.Nonce { // the call is a repeated one
		return b.acquire(ctx, next)
	}
	var token guard.Token
	freed, err := b.leave(r, r.Nonce)
	if freed && !slices.ContainsFunc(h.refused, func(nonce string) bool { return nonce != next.Nonce }) {
		token, err = b.acquire(ctx, next)
	}
	if freed && token == 0 {
		b.wake(r.Resource)
	}
	return token, err
}

// AcquireInTurn implements [lock.FairBackend].
func (b *Backend) AcquireInTurn(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err // and queue nobody who does not wait
	}
	now := time.Now()
	queue := slices.DeleteFunc(b.queues[r.Resource], func(c contender) bool { return c.nonce != r.Nonce && c.until.Before(now) })
	i := slices.IndexFunc(queue, func(c contender) bool { return c.nonce == r.Nonce })
	if i < 0 {
		i, queue = len(queue), append(queue, contender{nonce: r.Nonce})
	}
	queue[i].until = now.Add(patience)
	b.queues[r.Resource] = queue
	if h := b.live(r.Resource); i > 0 && h == nil {
		return 0, &lock.HeldError{Resource: r.Resource, Holder: "an earlier waiter", Remaining: patience}
	}
	token, err := b.acquire(ctx, r)
	if err == nil {
		b.withdraw(r)
	}
	return token, err
}

// Withdraw implements [lock.FairBackend].
func (b *Backend) Withdraw(_ context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.withdraw(r)
	b.wake(r.Resource)
	return nil
}

func (b *Backend) withdraw(r lock.Request) {
	queue := slices.DeleteFunc(b.queues[r.Resource], func(c contender) bool { return c.nonce == r.Nonce })
	if b.queues[r.Resource] = queue; len(queue) == 0 {
		delete(b.queues, r.Resource)
	}
}

// Watch implements [lock.Waiter].
func (b *Backend) Watch(r lock.Request) (<-chan struct{}, func()) {
	w := watcher{nonce: r.Nonce, wake: make(chan struct{}, 1)}
	w.wake <- struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers[r.Resource] = append(b.watchers[r.Resource], w)
	return w.wake, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		rest := slices.DeleteFunc(b.watchers[r.Resource], func(other watcher) bool { return other == w })
		if b.watchers[r.Resource] = rest; len(rest) == 0 {
			delete(b.watchers, r.Resource)
		}
	}
}

// wake wakes those who watch resource, but of those who queue the first one only.
func (b *Backend) wake(resource string) {
	queue := b.queues[resource]
	for _, w := range b.watchers[resource] {
		if i := slices.IndexFunc(queue, func(c contender) bool { return c.nonce == w.nonce }); i > 0 {
			continue
		}
		select {
		case w.wake <- struct{}{}:
		default: // it has a wake-up waiting
		}
	}
}

// Inspect implements [lock.Inspector].
func (b *Backend) Inspect(_ context.Context, resource string) (lock.Holding, error) {
	if err := guard.ValidateResource(resource); err != nil {
		return lock.Holding{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.live(resource)
	if h == nil {
		return lock.Holding{Resource: resource}, nil
	}
	return lock.Holding{
		Resource: resource, Token: h.token, Holder: h.holder,
		Members: len(h.members), Remaining: time.Until(h.expires),
	}, nil
}

// live returns the lock of resource if it has not expired.
func (b *Backend) live(resource string) *held {
	h := b.locks[resource]
	if h != nil && !time.Now().Before(h.expires) {
		delete(b.locks, resource)
		return nil
	}
	return h
}

// forget drops the locks that nobody released and that have expired, and the queues
// that all have left, whenever there are twice as many locks as after the last time.
func (b *Backend) forget() {
	if len(b.locks) < b.sweep {
		return
	}
	now := time.Now()
	maps.DeleteFunc(b.locks, func(_ string, h *held) bool { return !now.Before(h.expires) })
	maps.DeleteFunc(b.queues, func(_ string, queue []contender) bool {
		return !slices.ContainsFunc(queue, func(c contender) bool { return !c.until.Before(now) })
	})
	b.sweep = max(64, 2*len(b.locks))
}
