package redlock

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// WithPromise makes b use another script for its second phase.
func (b *Backend) WithPromise(lua string) *Backend {
	b.promise = redis.NewScript(lua)
	return b
}

// WithClock makes b measure its acquisitions by another clock.
func (b *Backend) WithClock(now func() time.Time) *Backend {
	b.now = now
	return b
}

// When a node counts as silent, and how many calls it gets then.
const (
	MaxSilent  = maxSilent
	MinSilence = minSilence
)

// The words by which a test tells the calls of the phases apart.
const (
	GrantKeys   = 5
	PromiseKeys = 2
)

// KeysOf returns how many keys a call of a script has, and its arguments after them.
func KeysOf(cmd redis.Cmder) (keys int, args []any) {
	if !slices.Contains([]string{"eval", "evalsha"}, cmd.Name()) {
		return 0, nil
	}
	keys, _ = cmd.Args()[2].(int)
	return keys, cmd.Args()[3+keys:]
}

// LockKey is where the lock of a resource is.
func (b *Backend) LockKey(resource string) string { return b.config.scheme.Lock(resource) }

// FenceKey is where a node's memory is.
func (b *Backend) FenceKey() string { return b.config.scheme.Counter("") }

// Owed returns how many debts a node has.
func (b *Backend) Owed(node int) int {
	d := &b.nodes[node].debts
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.owed)
}
