package redislock

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/sequencer"
)

type config struct {
	scheme  rediskeys.Scheme
	names   func(resource string) (lock, counter string) // instead of the scheme
	maxJump guard.Token
	mode    string

	replicas     int // that must confirm an acquisition
	replicasWait time.Duration
	replicated   bool
}

// Whose the keys of the locks are.
const (
	own    = "own"
	shared = "shared" // with another library
)

// An Option configures a [Backend].
type Option func(*config)

// WithPrefix sets the first part of every key. Defaults to "fencing". All
// processes that share locks need the same prefix.
func WithPrefix(prefix string) Option { return func(c *config) { c.scheme.Prefix = prefix } }

// WithShards sets the number of counters, over which the resources are spread by
// a hash, and with them the number of Cluster slots in use. Defaults to 256. All
// processes that share locks need the same number: with another one the same
// resource has another lock.
func WithShards(n int) Option { return func(c *config) { c.scheme.Shards = n } }

// WithMaxJump bounds how far ahead of a counter an acquisition may ask for a
// token. Defaults to sequencer.DefaultMaxJump.
func WithMaxJump(d guard.Token) Option { return func(c *config) { c.maxJump = d } }

// WithKeys keeps the lock of a resource under a key of your choice, so that it
// excludes the locks of another library during a migration: one that sets a string
// with NX under that key, as redsync does. Whatever is found there and is no lock
// of ours counts as held. The two keys of a resource
// differ, and in Cluster they need one hash tag.
func WithKeys(names func(resource string) (lock, counter string)) Option {
	return func(c *config) { c.names, c.mode = names, shared }
}

func newConfig(rdb redis.UniversalClient, opts []Option) (config, error) {
	c := config{scheme: rediskeys.Default(), maxJump: sequencer.DefaultMaxJump, mode: own}
	if isNil(rdb) {
		return c, errors.New("redislock: the Redis client is nil")
	}
	for _, opt := range opts {
		if opt == nil {
			return c, errors.New("redislock: an option is nil")
		}
		opt(&c)
	}
	if err := c.scheme.Validate(); err != nil {
		return c, fmt.Errorf("redislock: %w", err)
	}
	if c.maxJump <= 0 {
		return c, fmt.Errorf("redislock: greatest jump %d is not positive", c.maxJump)
	}
	if c.replicated {
		if err := c.checkReplicas(rdb); err != nil {
			return c, err
		}
	}
	if c.mode == shared {
		return c, c.checkNames(rdb)
	}
	return c, nil
}

func (c config) checkNames(rdb redis.UniversalClient) error {
	if c.names == nil {
		return errors.New("redislock: WithKeys: the function is nil")
	}
	k := c.keys("example", "")
	if k.Lock == "" || k.Lock == k.Counter {
		return fmt.Errorf("redislock: WithKeys: the lock key %q and the counter key %q must be two keys", k.Lock, k.Counter)
	}
	tag := rediskeys.HashTag(k.Lock)
	if _, cluster := rdb.(*redis.ClusterClient); cluster && (tag == "" || tag != rediskeys.HashTag(k.Counter)) {
		return fmt.Errorf("redislock: WithKeys: the keys %q and %q would be in different slots of the cluster; give both one hash tag in braces", k.Lock, k.Counter)
	}
	return nil
}

// isNil also finds the nil pointer of one of go-redis' own clients.
func isNil(rdb redis.UniversalClient) bool {
	switch c := rdb.(type) {
	case nil:
		return true
	case *redis.Client:
		return c == nil
	case *redis.ClusterClient:
		return c == nil
	case *redis.Ring:
		return c == nil
	}
	return false
}

// keys returns the names of what Redis keeps for one member of one lock.
func (c config) keys(resource, member string) rediskeys.Keys {
	if c.mode == own {
		return c.scheme.Keys(resource, member)
	}
	return c.sharedKeys(resource, member)
}

// usual returns those of the keys that most calls need.
func (c config) usual(resource, member string) rediskeys.Usual {
	if c.mode == own {
		return c.scheme.Usual(resource, member)
	}
	return c.sharedKeys(resource, member).Usual
}

func (c config) sharedKeys(resource, member string) rediskeys.Keys {
	lock, counter := c.names(resource)
	// Beside the counter, whose name the caller has chosen for us alone; beside the
	// lock it could be the lock of another resource.
	return rediskeys.Keys{
		Usual:   rediskeys.Usual{Lock: lock, Counter: counter, Released: counter + ":released:" + member},
		Members: counter + ":members:" + resource, Queue: counter + ":queue:" + resource, Alive: counter + ":alive:" + resource,
	}
}
