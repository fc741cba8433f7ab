package redislock

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
)

// A script is redis.Script with fewer allocations.
type script struct {
	*redis.Script
	source string
	hash   any
	many   *bundleScript // of several calls; nil if there is none
}

func newScript(source string) *script {
	s := redis.NewScript(source)
	return &script{Script: s, source: source, hash: s.Hash()}
}

// bundled returns s, for several usual calls of which many stands.
func (s *script) bundled(many *bundleScript) *script {
	s.many = many
	return s
}

// migrationWait is how long a call waits for a slot that is on its way.
const migrationWait = 5 * time.Second

// firstKey is the place of a script's first key among the arguments of a command.
const firstKey = 3

// An evaluation is one run of a script, with what its arguments point to: in one
// allocation, where a value of each would take one.
type evaluation struct {
	rediskeys.Usual
	rare    *rediskeys.Keys // all of them, if the usual ones are not enough
	request lock.Request
	member  string
	ttl     int64 // in milliseconds
	number  int64 // of one that waits, see grants.go
	sent    sent
	room    [firstKey + 3 + 4]any
	args    []any         // of the command, in the room if that is enough
	bundled *bundleScript // does this call together with others; nil if it has to go alone
}

// evaluation returns one with the usual keys.
func (b *Backend) evaluation(r lock.Request, member string) *evaluation {
	return &evaluation{Usual: b.config.usual(r.Resource, member), request: r, member: member, ttl: milliseconds(r.TTL)}
}

// all gives e the keys that are not usual.
func (b *Backend) all(e *evaluation) *evaluation {
	k := b.config.keys(e.request.Resource, e.member)
	e.Usual, e.rare = k.Usual, &k
	return e
}

// sent is the number of keys of a command, and counts how often it was sent: go-redis
// repeats a command whose reply did not come, and tells nobody. (It also sends one
// elsewhere that a node of a Cluster has not done; that counts too, and makes a caller
// only more careful.)
type sent struct {
	text  [4]byte
	keys  int16
	times int16
}

func (s *sent) MarshalBinary() ([]byte, error) {
	s.times++
	return strconv.AppendInt(s.text[:0], int64(s.keys), 10), nil
}

// A call sends the command of an evaluation.
type call func(ctx context.Context, e *evaluation) (any, error)

// run evaluates the script, also on a server that does not know it yet. The first
// of args are its keys, and pointers to them.
func (e *evaluation) run(ctx context.Context, send call, s *script, keys int, args ...any) (any, error) {
	if ctx.Err() != nil { // a client for Cluster would not look
		return nil, context.Cause(ctx)
	}
	e.sent, e.bundled = sent{keys: int16(keys)}, nil
	if s.many != nil && len(args) == s.many.args {
		e.bundled = s.many
	}
	e.args = append(append(e.room[:0], "evalsha", s.hash, &e.sent), args...)
	var begun time.Time // of the migration of a slot
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		reply, err := send(ctx, e)
		if says(err, "NOSCRIPT") {
			e.args[0], e.args[1], e.bundled = "eval", s.source, nil
			e.sent.times-- // it did nothing; one before it may have
			reply, err = send(ctx, e)
		}
		if !migrating(err) {
			return reply, err
		}
		if begun.IsZero() {
			begun = time.Now()
		}
		if time.Since(begun) > migrationWait {
			return reply, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return reply, err
		}
	}
}

// migrating reports whether a slot of a Cluster is on its way to another node. Until
// it has arrived, neither has all keys of a script; a client gives up after a few
// attempts within milliseconds.
func migrating(err error) bool {
	_, ask := redis.IsAskError(err)
	return ask || says(err, "TRYAGAIN")
}

// command returns the command, which has not been sent yet.
func (e *evaluation) command(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx, e.args...)
	cmd.SetFirstKeyPos(firstKey)
	return cmd
}
