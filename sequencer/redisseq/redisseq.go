// Package redisseq is the sequencer on Redis, through a go-redis client for a
// single server, Sentinel or Cluster. It counts in the keys of lock/redislock, so
// that it can repair the counters of that back end.
//
// The counters are <prefix>:fence:{shard}, as many as there are shards, whatever
// the number of resources, and have no TTL. After a failover, FLUSHALL, an
// eviction or the restore of an old file they go backwards; Next with the token of
// the store as after takes them forward again. Set maxmemory-policy to noeviction
// or to one of the volatile policies, which leave them alone.
package redisseq

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediscluster"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/sequencer"
)

//go:embed next.lua
var nextLua string

var nextScript = redis.NewScript(rediskeys.CounterLua + nextLua)

// A Sequencer counts in Redis. It is safe for concurrent use.
type Sequencer struct {
	rdb     redis.UniversalClient
	scheme  rediskeys.Scheme
	maxJump guard.Token
}

var _ sequencer.Sequencer = (*Sequencer)(nil)

// An Option configures a [Sequencer].
type Option func(*Sequencer)

// WithPrefix sets the first part of every key. Defaults to "fencing". It must be
// the one of the lock back end.
func WithPrefix(prefix string) Option { return func(s *Sequencer) { s.scheme.Prefix = prefix } }

// WithShards sets the number of counters, over which the resources are spread by
// a hash. Defaults to 256. It must be the one of the lock back end.
func WithShards(n int) Option { return func(s *Sequencer) { s.scheme.Shards = n } }

// WithMaxJump bounds how far after may be ahead of a counter; around 2^53 and
// above it is exact to one part in 2^53 only. Defaults to
// [sequencer.DefaultMaxJump].
func WithMaxJump(d guard.Token) Option { return func(s *Sequencer) { s.maxJump = d } }

// New returns a sequencer on rdb. It does not talk to the server, and never closes
// rdb. The error names the option that makes no sense.
func New(rdb redis.UniversalClient, opts ...Option) (*Sequencer, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("redisseq: the Redis client is nil")
	}
	s := &Sequencer{rdb: rdb, scheme: rediskeys.Default(), maxJump: sequencer.DefaultMaxJump}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("redisseq: an option is nil")
		}
		opt(s)
	}
	if err := s.scheme.Validate(); err != nil {
		return nil, fmt.Errorf("redisseq: %w", err)
	}
	if s.maxJump <= 0 {
		return nil, fmt.Errorf("redisseq: greatest jump %d is not positive", s.maxJump)
	}
	return s, nil
}

// Next implements [sequencer.Sequencer], in one round trip. Resources of one shard
// share a counter, so that tokens of a resource have gaps.
func (s *Sequencer) Next(ctx context.Context, resource string, after guard.Token) (guard.Token, error) {
	if err := sequencer.Validate(resource, after); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("redisseq: next %q: %w", resource, err)
	}
	key := s.scheme.Counter(resource)
	token, err := s.next(ctx, key, after)
	if err != nil {
		return 0, fmt.Errorf("redisseq: next %q: counter %s: %w", resource, key, err)
	}
	return token, nil
}

func (s *Sequencer) next(ctx context.Context, key string, after guard.Token) (guard.Token, error) {
	reply, err := nextScript.Run(ctx, s.rdb, []string{key}, after.String(), s.maxJump.String()).Slice()
	if err != nil {
		rediscluster.Heed(s.rdb, err)
		return 0, explain(err, after)
	}
	if len(reply) != 2 {
		return 0, fmt.Errorf("the server's answer has %d parts, want 2", len(reply))
	}
	text, _ := reply[1].(string)
	var n guard.Token
	if err := n.UnmarshalText([]byte(text)); err != nil {
		return 0, err
	}
	if reply[0] == int64(-1) {
		_, err := sequencer.Advance(n, after, s.maxJump)
		if err == nil { // the script's arithmetic rounds
			err = sequencer.ErrJump
		}
		return 0, err
	}
	return n, nil
}

// explain adds to an error of the server what its reader can do about it. Before
// Redis 7 the error of a command in a script does not begin with its code.
func explain(err error, after guard.Token) error {
	says := func(text string) bool { return strings.Contains(err.Error(), text) }
	switch {
	case says("would overflow"):
		return fmt.Errorf("there is no token above it and above %d; an operator must run \"fencectl rebase\": %w: %w", after, sequencer.ErrExhausted, err)
	case says("WRONGTYPE"), says("not an integer"):
		return fmt.Errorf("the key has something that is no counter; nothing was changed, choose another prefix: %w", err)
	case says("READONLY"):
		return fmt.Errorf("the server is a read-only replica; connect to the primary, or through Sentinel: %w", err)
	}
	return err
}
