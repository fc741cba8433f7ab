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

// Keys are the keys of one resource, and of one of those who have it or want it.
type Keys struct {
	Usual
	Members string // the hash of those who share the lock
	Queue   string // the list of those who wait in order
	Alive   string // the hash that has until when each of them is presumed alive
}

// Usual are those that most calls need.
type Usual struct {
	Lock     string
	Counter  string // shared with the other resources of the shard
	Released string // says for a short time that the acquisition of that nonce, or the member of that name, has released
}

// Keys returns the keys of resource and member.
func (s Scheme) Keys(resource, member string) Keys { return s.keys(resource, member, 6) }

// Usual returns the usual keys, Released only if member is one.
func (s Scheme) Usual(resource, member string) Usual {
	if member == "" {
		return s.keys(resource, member, 2).Usual
	}
	return s.keys(resource, member, 3).Usual
}

// keys returns the first n keys, as parts of one string: every call to Redis needs
// several, and one allocation is enough for them.
func (s Scheme) keys(resource, member string, n int) Keys {
	var digits [5]byte // of MaxShards-1
	shard := strconv.AppendUint(digits[:0], uint64(s.shard(resource)), 10)
	var text strings.Builder
	text.Grow(n*(len(s.Prefix)+len(":released:{}:")+len(shard)) + max(1, n-2)*len(resource) + len(member))
	key := func(kind, end, name string) string {
		begin := text.Len()
		text.WriteString(s.Prefix)
		text.WriteString(kind)
		text.Write(shard)
		text.WriteString(end)
		text.WriteString(name)
		return text.String()[begin:]
	}
	k := Keys{Usual: Usual{Lock: key(":lock:{", "}:", resource), Counter: key(":fence:{", "}", "")}}
	if n > 2 {
		k.Released = key(":released:{", "}:", member)
	}
	if n > 3 {
		k.Members = key(":members:{", "}:", resource)
		k.Queue = key(":queue:{", "}:", resource)
		k.Alive = key(":alive:{", "}:", resource)
	}
	return k
}

// Lock returns the key of the lock of resource.
func (s Scheme) Lock(resource string) string { return s.Usual(resource, "").Lock }

// Counter returns the key of the counter of resource.
func (s Scheme) Counter(resource string) string { return s.Usual(resource, "").Counter }

// Counters returns the keys of the counters of all shards.
func (s Scheme) Counters() []string {
	keys := make([]string, s.Shards)
	for i := range keys {
		keys[i] = s.Prefix + ":fence:{" + strconv.Itoa(i) + "}"
	}
	return keys
}

// Resource returns the resource of which key is the lock.
func (s Scheme) Resource(key string) (resource string, ok bool) {
	_, resource, ok = strings.Cut(key, "}:")
	return resource, ok && s.Lock(resource) == key
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
func (s Scheme) shard(resource string) uint32 {
	h := uint32(2166136261)
	for i := range len(resource) {
		h = (h ^ uint32(resource[i])) * 16777619
	}
	return h % uint32(s.Shards)
}
