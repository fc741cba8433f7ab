package redlock

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

type config struct {
	scheme       rediskeys.Scheme
	maxJump      guard.Token
	nodeTimeout  time.Duration
	restartDelay time.Duration
	delayed      bool // restartDelay was chosen
}

// An Option configures a [Backend].
type Option func(*config)

// WithPrefix sets the first part of every key. Defaults to "fencing:redlock". All
// processes that share locks need the same prefix and the same nodes.
func WithPrefix(prefix string) Option { return func(c *config) { c.scheme.Prefix = prefix } }

// WithMaxJump bounds how far ahead of the counters an acquisition may ask for a
// token. Defaults to sequencer.DefaultMaxJump.
func WithMaxJump(d guard.Token) Option { return func(c *config) { c.maxJump = d } }

// WithNodeTimeout sets how long a call waits for the nodes that have not answered
// while those that have are no majority. Defaults to 500ms. It is never more than
// half of the TTL of the lock.
func WithNodeTimeout(d time.Duration) Option { return func(c *config) { c.nodeTimeout = d } }

// WithRestartDelay sets how long a node that is new, was started again or has lost
// its data gives no vote, since it may have forgotten a lock that somebody holds. It
// must be no shorter than the longest TTL of all lockers that share the nodes.
// Defaults to the TTL of the lock that is asked for, which is enough if all lockers
// have the same one. The very first acquisition waits for it too: nothing tells
// nodes that are all new from nodes that have all forgotten.
//
// 0 trusts every node to remember all that it ever promised, whatever happens to it:
// appendonly yes and appendfsync always on each of them, and no FLUSHALL.
func WithRestartDelay(d time.Duration) Option {
	return func(c *config) { c.restartDelay, c.delayed = d, true }
}

const defaultNodeTimeout = 500 * time.Millisecond

func newConfig(opts []Option) (config, error) {
	c := config{
		// One counter for all resources: their tokens share it without refusing each
		// other, see promise.lua, and a node has one memory to lose.
		scheme:      rediskeys.Scheme{Prefix: "fencing:redlock", Shards: 1},
		maxJump:     sequencer.DefaultMaxJump,
		nodeTimeout: defaultNodeTimeout,
	}
	for _, opt := range opts {
		if opt == nil {
			return c, errors.New("redlock: an option is nil")
		}
		opt(&c)
	}
	if err := c.scheme.Validate(); err != nil {
		return c, fmt.Errorf("redlock: %w", err)
	}
	if c.maxJump <= 0 {
		return c, fmt.Errorf("redlock: greatest jump %d is not positive", c.maxJump)
	}
	if c.nodeTimeout < time.Millisecond {
		return c, fmt.Errorf("redlock: node timeout %v is less than 1ms", c.nodeTimeout)
	}
	if c.restartDelay < 0 || c.restartDelay > lock.MaxTTL {
		return c, fmt.Errorf("redlock: restart delay %v is not from 0 to %v", c.restartDelay, lock.MaxTTL)
	}
	return c, nil
}

// checkNodes refuses what would be no quorum of independent masters. It cannot see
// that two addresses lead to one server.
func checkNodes(nodes []redis.UniversalClient) error {
	if len(nodes) == 0 {
		return errors.New("redlock: there are no nodes")
	}
	seen := make(map[uintptr]int)
	addrs := make(map[string]int)
	for i, rdb := range nodes {
		v := reflect.ValueOf(rdb)
		if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return fmt.Errorf("redlock: nodes[%d] is nil", i)
		}
		if v.Kind() == reflect.Pointer {
			if first, again := seen[v.Pointer()]; again {
				return fmt.Errorf("redlock: nodes[%d] is the same client as nodes[%d]; one server would have two votes", i, first)
			}
			seen[v.Pointer()] = i
		}
		addr, known := address(rdb)
		if !known {
			continue
		}
		if first, again := addrs[addr]; again {
			return fmt.Errorf("redlock: nodes[%d] is at %s, as nodes[%d] is; one server would have two votes", i, addr, first)
		}
		addrs[addr] = i
	}
	return nil
}

// address returns where a client of a single server connects to.
func address(rdb redis.UniversalClient) (addr string, known bool) {
	c, single := rdb.(*redis.Client)
	if !single || c.Options().Addr == "FailoverClient" { // go-redis' name for: ask Sentinel
		return "", false
	}
	return c.Options().Addr, true
}

// keys are the names of what each node keeps for one acquisition.
type keys struct {
	lock    string
	fence   string // the memory of the node: one for all resources
	waiting string // that the node may have forgotten locks
	mark    string // that the nonce has released, for a short time
}

func (c config) keys(r lock.Request) keys {
	k := c.scheme.Keys(r.Resource, r.Nonce)
	return keys{lock: k.Lock, fence: k.Counter, waiting: k.Counter + ":waiting", mark: k.Released}
}

// limit is how long a call for r waits for nodes.
func (c config) limit(r lock.Request) time.Duration {
	if r.TTL <= 0 { // a release does not need one
		return c.nodeTimeout
	}
	return min(c.nodeTimeout, r.TTL/2)
}

// delay is how long a node that may have forgotten gives no vote. What it promised
// just before may count for another TTL, and the vote that is asked for now may have
// been under way for a node timeout.
func (c config) delay(r lock.Request) time.Duration {
	switch {
	case !c.delayed:
		return r.TTL + c.limit(r)
	case c.restartDelay == 0:
		return 0
	}
	return c.restartDelay + c.limit(r)
}
