package redlock

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
)

//go:embed memory.lua
var memoryLua string

//go:embed grant.lua
var grantLua string

//go:embed promise.lua
var promiseLua string

//go:embed renew.lua
var renewLua string

//go:embed restore.lua
var restoreLua string

//go:embed release.lua
var releaseLua string

//go:embed retract.lua
var retractLua string

//go:embed inspect.lua
var inspectLua string

var (
	grantScript   = redis.NewScript(memoryLua + grantLua)
	promiseScript = redis.NewScript(rediskeys.CounterLua + memoryLua + promiseLua)
	renewScript   = redis.NewScript(renewLua)
	restoreScript = redis.NewScript(rediskeys.CounterLua + restoreLua)
	releaseScript = redis.NewScript(releaseLua)
	retractScript = redis.NewScript(retractLua)
	inspectScript = redis.NewScript(inspectLua)
)

// markLife is how long a node tells a release from a loss when its reply was missed,
// and refuses what a release has overtaken: longer than a client repeats a call by
// itself.
const markLife = 10 * time.Second

// A Backend keeps locks in a majority of its nodes. It is safe for concurrent use,
// and implements [lock.BatchRenewer], [lock.Inspector] and [lock.Bounded]. Waiters
// poll.
type Backend struct {
	nodes   []*node
	config  config
	promise *redis.Script
	tries   atomic.Int64
	now     func() time.Time
}

// New returns a back end on nodes: masters that know nothing of each other, an odd
// number of them, since an even one tolerates no more failures than the odd one
// below it. One node alone is allowed. New does not talk to the servers, and the
// clients are never closed. The error names the node or the option that makes no
// sense.
func New(nodes []redis.UniversalClient, opts ...Option) (*Backend, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if err := checkNodes(nodes); err != nil {
		return nil, err
	}
	b := &Backend{config: c, promise: promiseScript, now: time.Now}
	for i, rdb := range nodes {
		b.nodes = append(b.nodes, &node{rdb: rdb, index: i})
	}
	return b, nil
}

// quorum is how many nodes are a majority.
func (b *Backend) quorum() int { return len(b.nodes)/2 + 1 }

// Bounded implements [lock.Bounded]: no call waits for its nodes beyond the end of
// its context.
func (b *Backend) Bounded() bool { return true }

// Release implements [lock.Backend]. It is sent to every node, and goes on in the
// background when a majority has answered.
func (b *Backend) Release(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redlock: release %q: %w", r.Resource, err)
	}
	keys := b.config.keys(r)
	p := b.ask(ctx, b.config.limit(r), b.nodes, call{
		script: releaseScript, keys: []string{keys.lock, keys.mark},
		args: []any{r.Nonce, milliseconds(markLife)}, insist: r.TTL,
	})
	yes, no := 0, 0
	var failure error
	for yes < b.quorum() && no <= len(b.nodes)-b.quorum() {
		a, ok := p.next(ctx, nil)
		if !ok {
			err := ctx.Err()
			if err == nil {
				err = b.undecided(yes+no, p, failure)
			}
			return fmt.Errorf("redlock: release %q: %w", r.Resource, err)
		}
		switch a.word() {
		case "yes":
			yes++
		case "no":
			no++
		default:
			failure = fmt.Errorf("nodes[%d]: %w", a.node, unexpected(a))
		}
	}
	if yes < b.quorum() {
		return fmt.Errorf("redlock: release %q: %d of %d nodes do not have it: %w", r.Resource, no, len(b.nodes), lock.ErrLost)
	}
	return nil
}

// undecided says how many nodes answered, and why the last one of the others did not.
func (b *Backend) undecided(answered int, p *poll, failure error) error {
	for i := range p.silent {
		failure = cmp.Or(failure, fmt.Errorf("nodes[%d]: %w", i, p.missing()))
	}
	if failure == nil {
		return fmt.Errorf("%d of %d nodes answered, and no majority of %d agrees", answered, len(b.nodes), b.quorum())
	}
	return fmt.Errorf("%d of %d nodes answered, a majority of %d is needed: %w", answered, len(b.nodes), b.quorum(), failure)
}

// Inspect implements [lock.Inspector]. A lock counts as held while a majority of the
// nodes has it.
func (b *Backend) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	h := lock.Holding{Resource: resource}
	if err := guard.ValidateResource(resource); err != nil {
		return h, err
	}
	keys := b.config.keys(lock.Request{Resource: resource})
	p := b.ask(ctx, b.config.nodeTimeout, b.nodes, call{script: inspectScript, keys: []string{keys.lock}})
	by := make(map[string][]answer) // nonce
	answered := 0
	var failure error
	for {
		a, ok := p.next(ctx, nil)
		if !ok {
			break
		}
		if a.err != nil || len(a.reply) != 4 {
			failure = fmt.Errorf("nodes[%d]: %w", a.node, unexpected(a))
			continue
		}
		answered++
		nonce := a.reply[0]
		by[nonce] = append(by[nonce], a)
		if len(by[nonce]) < b.quorum() {
			continue
		}
		if nonce != "" {
			h.Members, h.Holder = 1, a.part(2)
			for i, a := range by[nonce] {
				left := duration(a.part(3))
				if i == 0 || left < h.Remaining {
					h.Remaining = left
				}
				h.Token = max(h.Token, tokenOf(a.part(1)))
			}
		}
		return h, nil
	}
	if err := ctx.Err(); err != nil {
		return h, fmt.Errorf("redlock: inspect %q: %w", resource, err)
	}
	if answered < b.quorum() {
		return h, fmt.Errorf("redlock: inspect %q: %w", resource, b.undecided(answered, p, failure))
	}
	return h, nil // nobody has a majority
}

// unexpected is the error of an answer that says neither yes nor no.
func unexpected(a answer) error {
	if a.err != nil {
		return a.err
	}
	return fmt.Errorf("unexpected reply %q", a.reply)
}

// tokenOf reads a token that a node has, 0 if it has none.
func tokenOf(text string) guard.Token {
	n, _ := strconv.ParseInt(text, 10, 64) // the greatest one, if it does not fit
	return guard.Token(max(n, 0))
}

// duration reads what PTTL says.
func duration(text string) time.Duration {
	ms, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// milliseconds rounds up: PEXPIRE 0 would delete the lock.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
