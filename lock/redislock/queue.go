package redislock

import (
	"context"
	_ "embed"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
)

//go:embed queue.lua
var queueLua string

//go:embed withdraw.lua
var withdrawLua string

var acquireTurnScript = newScript(rediskeys.CounterLua + notesLua + queueLua + acquireLua)

// AcquireInTurn implements [lock.FairBackend]. Acquire takes no notice of the
// queue: either all processes use a resource with lock.WithFair, or none.
func (b *Backend) AcquireInTurn(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	b.inTurn.Store(true)
	e := b.all(b.evaluation(r, r.Nonce))
	reply, err := e.run(ctx, b.sendAcquire(), acquireTurnScript, 5, &e.Lock, &e.Counter, &e.Released, &e.rare.Queue, &e.rare.Alive,
		&e.request.Nonce, &e.request.Holder, &e.ttl, "", (*int64)(&e.request.After), b.maxJump, b.mode, milliseconds(patience))
	return b.granted(ctx, e, reply, err)
}

// Withdraw implements [lock.FairBackend].
func (b *Backend) Withdraw(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	e := b.all(b.evaluation(r, r.Nonce))
	reply, err := e.run(ctx, b.calls.do, b.releases.withdraw, 3, &e.Lock, &e.rare.Queue, &e.rare.Alive, &e.request.Nonce)
	return b.outcome("withdraw", e, reply, err)
}
