package redisguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediscluster"
	"github.com/go-fencing/fencing/internal/rediskeys"
)

//go:embed current.lua
var currentLua string

//go:embed raise.lua
var raiseLua string

var raiseScript = redis.NewScript(rediskeys.GreaterLua + currentLua + raiseLua)

// A Guard raises fences in a Redis and fences writes there. It is safe for concurrent
// use. The client remains the caller's: closing it ends the guard.
type Guard struct {
	rdb      redis.UniversalClient
	prefix   string
	tag      func(resource string) string
	observer guard.Observer
}

var _ guard.Guard = (*Guard)(nil)

// An Option configures a [Guard].
type Option func(*Guard)

// WithPrefix sets the first part of the names of the fences, which are
// <prefix>:raised:{tag}. Defaults to "fencing". All processes that share data need
// the same prefix.
func WithPrefix(prefix string) Option { return func(g *Guard) { g.prefix = prefix } }

// WithTag says which hash tag the keys of a resource have, without the braces. It
// defaults to that of the resource's own name, or else to the whole name: keys of
// "order:{7}" and "invoice:{7}" have the tag 7, those of "inventory:sku-42" the tag
// inventory:sku-42. All processes that share data need the same function, and it
// must not change: with another one the same resource has another fence.
func WithTag(tag func(resource string) string) Option { return func(g *Guard) { g.tag = tag } }

// WithObserver reports [guard.EventRaised], with how long the raise took,
// [guard.EventCommitted] for every write, with how much was left of the lease, and
// [guard.EventRefused], with the error: of a raise, of a write, and of a write whose
// outcome is unknown. Of a raise by a locker with an observer it is that one which is
// told.
func WithObserver(o guard.Observer) Option { return func(g *Guard) { g.observer = o } }

// New returns a guard on rdb: a *redis.Client, also one of redis.NewFailoverClient,
// or a *redis.ClusterClient. It does not talk to the server, and never closes rdb.
// The error names the option that makes no sense.
//
// A *redis.Ring is refused. While one of its servers is down it uses another one for
// the same keys, and then the first again, where an old fence may still be in force.
func New(rdb redis.UniversalClient, opts ...Option) (*Guard, error) {
	if err := checkClient(rdb); err != nil {
		return nil, err
	}
	g := &Guard{rdb: rdb, prefix: rediskeys.Default().Prefix, tag: ownTag}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("redisguard: an option is nil")
		}
		opt(g)
	}
	if err := (rediskeys.Scheme{Prefix: g.prefix, Shards: 1}).Validate(); err != nil {
		return nil, fmt.Errorf("redisguard: %w", err)
	}
	if g.tag == nil {
		return nil, errors.New("redisguard: WithTag: the function is nil")
	}
	return g, nil
}

func checkClient(rdb redis.UniversalClient) error {
	missing := rdb == nil
	switch c := rdb.(type) {
	case *redis.Client:
		missing = c == nil
	case *redis.ClusterClient:
		missing = c == nil
	case *redis.Ring:
		return errors.New("redisguard: a *redis.Ring moves keys to another server while one is down, where the fence is not; use a *redis.Client or a *redis.ClusterClient")
	}
	if missing {
		return errors.New("redisguard: the Redis client is nil")
	}
	return nil
}

// Raise implements [guard.Guard], in one round trip; for a resource without a fence
// it also looks whether the server may evict one, and fails with [ErrEvicts] if so,
// unless the user may not call INFO. A later fence in force is a [*guard.StaleError].
// After any other error it is unknown whether f was raised; raise it again, which is
// safe, or acquire anew.
//
// It waits for nobody: a script of an earlier fence has ended or will be refused.
// While nothing answers it ends with ctx where the client looks at that, or else with
// the client's own timeouts and repeats.
func (g *Guard) Raise(ctx context.Context, f guard.Fence) error {
	if err := f.Validate(); err != nil {
		return err
	}
	start := time.Now()
	err := g.raise(ctx, f)
	g.observer.Raised(ctx, f, time.Since(start), err)
	return err
}

func (g *Guard) raise(ctx context.Context, f guard.Fence) error {
	key, err := g.fenceKey(f.Resource)
	if err != nil {
		return fmt.Errorf("redisguard: raise %q: %w", f.Resource, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("redisguard: raise %q: nothing was sent: %w", f.Resource, context.Cause(ctx))
	}
	reply, err := raiseScript.Run(ctx, g.rdb, []string{key}, f.Token.String(), f.Nonce, f.Holder).Slice()
	if err != nil {
		rediscluster.Heed(g.rdb, err)
		return fmt.Errorf("redisguard: raise %q: %w", f.Resource, because(ctx, explained(err, key)))
	}
	switch status, _ := first(reply).(int64); {
	case status == 1:
		return nil
	case status == 0 && len(reply) == 5:
		if err := current(f, reply).Raise(f); err != nil {
			return err
		}
	case status == -1 && len(reply) == 2:
		return fmt.Errorf("redisguard: raise %q: %w: its maxmemory-policy is %v; nothing was written, set it to noeviction or to a volatile one", f.Resource, ErrEvicts, reply[1])
	}
	return fmt.Errorf("redisguard: raise %q: unexpected reply %v", f.Resource, reply)
}
