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

var (
	turnScript     = newScript(rediskeys.CounterLua + queueLua + acquireLua)
	withdrawScript = newScript(queueLua + withdrawLua)
)

// AcquireInTurn implements [lock.FairBackend]. Acquire takes no notice of the
// queue: either all processes use a resource with lock.WithFair, or none.
func (b *Backend) AcquireInTurn(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	return b.acquire(ctx, r, turnScript, milliseconds(patience))
}

// Withdraw implements [lock.FairBackend].
func (b *Backend) Withdraw(ctx context.Context, r lock.Request) error {
	keys := b.config.keys(r.Resource, r.Nonce)
	reply, err := withdrawScript.run(ctx, b.calls.do, []string{keys.lock, keys.queue, keys.alive}, []any{r.Nonce, b.publish})
	return b.outcome("withdraw", r.Resource, keys, reply, err)
}
