// Package rediskeys has what the lock, the sequencer and the guard on Redis share: the
// names of their keys, how tokens compare, and how a counter moves.
package rediskeys

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// GreaterLua is the beginning of every script that compares tokens: the function
// greater.
//
//go:embed greater.lua
var GreaterLua string

//go:embed counter.lua
var counterLua string

// CounterLua is the beginning of every script that hands out tokens: the function
// advance.
var CounterLua = GreaterLua + counterLua

// A Scheme spreads resources over shards. A shard's number in braces is the hash
// tag of its keys, so that everything of one resource is in one Cluster slot, and
// there are as many counters as shards, however many resources there are.
type Scheme struct {
	Prefix string
	Shards int
}

// MaxShards is the number of slots of a Redis Cluster.
const MaxShards = 16384

// Default returns the scheme of all who choose none.
func Default() Scheme { return Scheme{Prefix: "fencing", Shards: 256} }

// Validate says what is wrong with the scheme.
func (s Scheme) Validate() error {
	switch {
	case s.Prefix == "":
		return errors.New("the key prefix is empty; keys without one collide with the application's own")
	case strings.ContainsAny(s.Prefix, "{}"):
		return fmt.Errorf("key prefix %q has a brace, which would change the Cluster slot of its keys", s.Prefix)
	case strings.ContainsFunc(s.Prefix, unicode.IsControl):
		return fmt.Errorf("key prefix %q has a control character", s.Prefix)
	case s.Shards < 1 || s.Shards > MaxShards:
		return fmt.Errorf("%d shards are not from 1 to %d", s.Shards, MaxShards)
	}
	return nil
}

// Lock returns the key of the lock of resource.
func (s Scheme) Lock(resource string) string { return s.key("lock", resource, resource) }

// Counter returns the key of the counter of resource, which it shares with the
// other resources of its shard.
func (s Scheme) Counter(resource string) string { return s.counter(s.shard(resource)) }

// Counters returns the keys of the counters of all shards.
func (s Scheme) Counters() []string {
	keys := make([]string, s.Shards)
	for i := range keys {
		keys[i] = s.counter(strconv.Itoa(i))
	}
	return keys
}

func (s Scheme) counter(shard string) string { return s.Prefix + ":fence:{" + shard + "}" }

// Resource returns the resource of which key is the lock.
func (s Scheme) Resource(key string) (resource string, ok bool) {
	_, resource, ok = strings.Cut(key, "}:")
	return resource, ok && s.Lock(resource) == key
}

// Released returns the key that says for a short time that the acquisition of
// nonce, or the member of that name, has released resource.
func (s Scheme) Released(resource, nonce string) string { return s.key("released", resource, nonce) }

// Queue returns the key of the list of those who wait for resource in order.
func (s Scheme) Queue(resource string) string { return s.key("queue", resource, resource) }

// Alive returns the key of the hash that has until when each of them is presumed
// alive.
func (s Scheme) Alive(resource string) string { return s.key("alive", resource, resource) }

func (s Scheme) key(kind, resource, name string) string {
	return s.Prefix + ":" + kind + ":{" + s.shard(resource) + "}:" + name
}

// HashTag returns the part of a key that decides its slot, "" if that is the whole
// key.
func HashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return ""
	}
	return tag
}

// shard is the 32-bit FNV-1a hash of the resource modulo the number of shards;
// clients in other languages compute the same.
func (s Scheme) shard(resource string) string {
	h := uint32(2166136261)
	for i := range len(resource) {
		h = (h ^ uint32(resource[i])) * 16777619
	}
	return strconv.Itoa(int(h % uint32(s.Shards)))
}
