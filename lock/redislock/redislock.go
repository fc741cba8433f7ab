// Package redislock is the lock back end on Redis, through a go-redis client for
// a single server, Sentinel or Cluster.
//
// A lock is a string under <prefix>:lock:{shard}:<resource> with a TTL; its token
// comes from the counter <prefix>:fence:{shard}, which has none. Every call is one
// script on one slot, and safe to repeat, since go-redis repeats calls by itself.
// Many calls at once share round trips and, on one server, several share the run of a
// script. A release is published on a channel that has the name of the lock's key, for those who
// wait.
//
// Redis proposes tokens, it does not guarantee them: after a failover, FLUSHALL,
// an eviction or the restore of an old file the counter goes backwards. The
// locker repairs it from the guards' stores; without a guard nothing does.
package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediscluster"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

//go:embed grant.lua
var grantLua string

//go:embed acquire.lua
var acquireLua string

//go:embed grants.lua
var grantsLua string

//go:embed renew.lua
var renewLua string

//go:embed join.lua
var joinLua string

var (
	acquireScript = newScript(grantLua + rediskeys.CounterLua + notesLua + acquireLua).bundled(&bundleScript{script: newScript(grantsLua), keys: 3, args: 3 + 3, acquires: true})
	renewScript   = newScript(renewLua)
	joinScript    = newScript(joinLua)
)

// A Backend keeps locks in Redis. It is safe for concurrent use and implements
// all optional interfaces of package lock.
type Backend struct {
	rdb    redis.UniversalClient
	config config
	calls  *batchers
	hub    *hub
	inTurn atomic.Bool // some lock was asked for in turn

	// The nonces of acquisitions of which a copy may still come: they were sent more than
	// once, or nobody knows what became of them.
	repeated sync.Map

	releases *releaseScripts

	// Arguments of the scripts that never change.
	maxJump any
	mode    any
}

// New returns a back end on rdb. It does not talk to the server, and never closes
// rdb. The error names the option that makes no sense.
func New(rdb redis.UniversalClient, opts ...Option) (*Backend, error) {
	c, err := newConfig(rdb, opts)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		rdb: rdb, config: c, calls: &batchers{rdb: rdb, scheme: c.scheme, of: make(map[string]*batcher)}, hub: newHub(rdb),
		releases: &published, maxJump: int64(c.maxJump), mode: c.mode,
	}
	if sharded(rdb) {
		b.releases = &publishedInSlot
	}
	return b, nil
}

// Bounded implements [lock.Bounded]. While nothing answers, a call ends with its
// context where go-redis looks at that (dialling, waiting for a connection), and
// with the client's read timeout, 3s by default, where it does not; with the
// client's option ContextTimeoutEnabled it ends with its context everywhere.
func (b *Backend) Bounded() bool {
	var contexts bool
	var read time.Duration
	switch c := b.rdb.(type) {
	case *redis.Client:
		contexts, read = c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout
	case *redis.ClusterClient:
		contexts, read = c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout
	case *redis.Ring:
		contexts, read = c.Options().ContextTimeoutEnabled, c.Options().ReadTimeout
	}
	return contexts || read > 0 && read <= 5*time.Second
}

// Acquire implements [lock.Backend]. Beyond the errors named there it returns
// sequencer.ErrJump if r.After is implausibly far ahead of the counter, and
// sequencer.ErrExhausted at the end of the integers.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	return b.acquire(ctx, r, false)
}

// acquire asks for the lock, on behalf of one that waits with a watch or of one that
// has none.
func (b *Backend) acquire(ctx context.Context, r lock.Request, waits bool) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	e := b.evaluation(r, r.Nonce)
	args := [...]any{&e.Lock, &e.Counter, &e.Released, &e.request.Nonce, &e.request.Holder, &e.ttl, "", (*int64)(&e.request.After), b.maxJump, b.mode}
	awaited, live := b.hub.watched(b.feedOf(e.Lock), e.Lock)
	switch {
	case waits && b.config.replicas == 0: // for which a release that grants does not wait
		if live {
			e.number = b.hub.number()
		}
		args[6] = &e.number
	case awaited:
		args[6] = "awaited"
	}
	// Each of them costs the server time, and usually the first ones are enough.
	needed := len(args)
	switch {
	case r.After == 0 && b.config.mode == own && !awaited:
		needed = 6
	case r.After == 0 && b.config.mode == own:
		needed = 7
	}
	reply, err := e.run(ctx, b.sendAcquire(), acquireScript, 3, args[:needed]...)
	token, err := b.granted(ctx, e, reply, err)
	if err != nil && !errors.Is(err, lock.ErrHeld) || err == nil && e.sent.times > 1 {
		b.repeated.Store(r.Nonce, nil) // until its release
	}
	return token, err
}

func (b *Backend) sendAcquire() call {
	if b.config.replicas > 0 {
		return b.confirmed
	}
	return b.calls.do
}

// granted turns the reply of one of the two scripts that acquire into a token.
func (b *Backend) granted(ctx context.Context, e *evaluation, reply any, err error) (guard.Token, error) {
	r, keys := e.request, e.Usual
	if errors.Is(err, ErrReplicas) {
		b.giveBack(ctx, r)
	}
	if err != nil {
		return 0, b.failed("acquire", r.Resource, keys, err)
	}
	switch reply := reply.(type) {
	case int64:
		return guard.Token(reply), nil
	case string:
		var token guard.Token
		if err := token.UnmarshalText([]byte(reply)); err != nil {
			return 0, fmt.Errorf("redislock: acquire %q: the counter %s is no counter: %w", r.Resource, keys.Counter, err)
		}
		return token, nil
	case []any:
		return 0, b.refused(r, keys, reply)
	}
	return 0, fmt.Errorf("redislock: acquire %q: unexpected reply %v", r.Resource, reply)
}

// refused turns the reply of a script that did not grant into an error.
func (b *Backend) refused(r lock.Request, keys rediskeys.Usual, reply []any) error {
	if len(reply) < 2 {
		return fmt.Errorf("redislock: acquire %q: unexpected reply %v", r.Resource, reply)
	}
	text, _ := reply[1].(string)
	if reply[0] == int64(-1) {
		return fmt.Errorf("redislock: acquire %q: a token above %d is asked for, the counter %s is at %s; the fence in the store is probably poisoned, an operator must run \"fencectl rebase\": %w", r.Resource, r.After, keys.Counter, text, sequencer.ErrJump)
	}
	held := &lock.HeldError{Resource: r.Resource, Holder: text, Silent: len(reply) > 3}
	if len(reply) > 2 {
		left, _ := reply[2].(int64)
		held.Remaining = max(0, time.Duration(left)*time.Millisecond)
	}
	return held
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, r lock.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	e := b.evaluation(r, "")
	reply, err := e.run(ctx, b.calls.do, renewScript, 1, &e.Lock, &e.request.Nonce, &e.ttl)
	if reply == int64(-1) {
		return b.renewShared(ctx, e)
	}
	return b.outcome("renew", e, reply, err)
}

func (b *Backend) renewShared(ctx context.Context, e *evaluation) error {
	b.all(e)
	reply, err := e.run(ctx, b.calls.do, joinScript, 2, &e.Lock, &e.rare.Members, &e.request.Nonce, &e.ttl)
	return b.outcome("renew", e, reply, err)
}

// Join implements [lock.Joiner].
func (b *Backend) Join(ctx context.Context, r lock.Request, member string) error {
	if err := r.Validate(); err != nil {
		return err
	}
	e := b.all(b.evaluation(r, member))
	reply, err := e.run(ctx, b.calls.do, joinScript, 3, &e.Lock, &e.rare.Members, &e.Released, &e.request.Nonce, &e.ttl, &e.member)
	return b.outcome("join", e, reply, err)
}

// Inspect implements [lock.Inspector].
func (b *Backend) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	h := lock.Holding{Resource: resource}
	if err := guard.ValidateResource(resource); err != nil {
		return h, err
	}
	keys := b.config.keys(resource, "")
	var value *redis.StringCmd
	var left *redis.DurationCmd
	var members *redis.IntCmd
	cmds, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		value, left, members = p.Get(ctx, keys.Lock), p.PTTL(ctx, keys.Lock), p.HLen(ctx, keys.Members)
		return nil
	})
	rediscluster.Stamp(cmds, err)
	if errors.Is(value.Err(), redis.Nil) {
		return h, nil
	}
	state, rest, ours := strings.Cut(strings.TrimPrefix(value.Val(), "fencing "), " ")
	switch foreign := says(value.Err(), "WRONGTYPE") || value.Err() == nil && (!ours || len(state) != len("held") || !strings.Contains(rest, "\n")); {
	case foreign && b.config.mode == shared:
		h.Holder, h.Members, h.Remaining = "a user of another library", 1, max(0, left.Val())
		return h, nil
	case foreign:
		return h, b.failed("inspect", resource, keys.Usual, errors.New("WRONGTYPE the key of the lock has something that is no lock"))
	case err != nil:
		return h, b.failed("inspect", resource, keys.Usual, err)
	case state == "free":
		return h, nil
	}
	lines := strings.SplitN(rest, "\n", 4) // nonce, token, holder
	if len(lines) < 4 {
		return h, b.failed("inspect", resource, keys.Usual, fmt.Errorf("the lock has %d lines in place of 4", len(lines)))
	}
	h.Holder, h.Remaining, h.Members = lines[2], max(0, left.Val()), 1
	if state == "join" {
		h.Members = max(1, int(members.Val())) // which may have been evicted alone
	}
	return h, h.Token.UnmarshalText([]byte(lines[1]))
}

// outcome turns the reply of a script that returns 1 or 0 into nil or ErrLost.
func (b *Backend) outcome(what string, e *evaluation, reply any, err error) error {
	switch {
	case says(err, "WRONGTYPE"):
		return fmt.Errorf("redislock: %s %q: %s now has something that is no lock: %w", what, e.request.Resource, e.Lock, lock.ErrLost)
	case err != nil:
		return b.failed(what, e.request.Resource, e.Usual, err)
	case reply != int64(1):
		return fmt.Errorf("redislock: %s %q: %w", what, e.request.Resource, lock.ErrLost)
	}
	return nil
}

// failed adds to an error of the server what its reader can do about it. A node that
// did not answer may no longer be the one to ask.
func (b *Backend) failed(what, resource string, keys rediskeys.Usual, err error) error {
	rediscluster.Heed(b.rdb, err)
	hint := ""
	switch {
	case says(err, "WRONGTYPE"):
		hint = fmt.Sprintf("%s or %s has something that is no lock; nothing was changed, choose another prefix: ", keys.Lock, keys.Counter)
	case says(err, "READONLY"):
		hint = "the server is a read-only replica; connect to the master, or through Sentinel: "
	case says(err, "CROSSSLOT"):
		hint = fmt.Sprintf("%s and %s need one hash tag: ", keys.Lock, keys.Counter)
	case says(err, "would overflow"):
		hint, err = fmt.Sprintf("counter %s: an operator must run \"fencectl rebase\": ", keys.Counter), fmt.Errorf("%w: %w", sequencer.ErrExhausted, err)
	case says(err, "not an integer"):
		hint = fmt.Sprintf("counter %s: ", keys.Counter)
	default:
		hint = b.unnamed(err)
	}
	return fmt.Errorf("redislock: %s %q: %s%w", what, resource, hint, err)
}

// unnamed returns the address of a server that has not replied, where the error, such as
// EOF, does not name it.
func (b *Backend) unnamed(err error) string {
	c, ok := b.rdb.(*redis.Client)
	if _, reply := errors.AsType[redis.Error](err); !ok || reply || errors.Is(err, context.Canceled) || says(err, c.Options().Addr) {
		return ""
	}
	return c.Options().Addr + ": "
}

// says reports whether the server's error has text in it. Before Redis 7 the
// error of a command in a script does not begin with its code.
func says(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// milliseconds rounds up: PEXPIRE 0 would delete the lock.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
