package redisguard

import (
	"context"
	"fmt"
	"time"

	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
)

// maxArguments is how many arguments a command or a script may have: Lua can pass
// on no more than 8,000.
const maxArguments = 7_000

// commandScript is one command, which the arguments are.
var commandScript = newScript(currentLua + checkLua + commandLua + leaveLua)

// Set is SET under the fences of ctx: it replaces the value of key, whatever its
// type. A ttl of 0 means none, redis.KeepTTL leaves it as it is; less than a
// millisecond is refused. For its errors see the package.
func (g *Guard) Set(ctx context.Context, key string, value any, ttl time.Duration) error {
	if ttl != redis.KeepTTL && (ttl < 0 || ttl > 0 && ttl < time.Millisecond) {
		return fmt.Errorf("redisguard: set %q: TTL %v is neither 0 nor at least 1ms: %w", key, ttl, guard.ErrInvalid)
	}
	args := []any{"SET", key, value}
	switch {
	case ttl == redis.KeepTTL:
		args = append(args, "KEEPTTL")
	case ttl > 0:
		args = append(args, "PX", ttl.Milliseconds())
	}
	return g.run(ctx, "set", commandScript, []string{key}, args).Err()
}

// HSet is HSET under the fences of ctx, and returns how many fields are new. values
// are those of go-redis' HSet: pairs, a map, a slice or a struct with tags, of some
// 3,500 fields at most.
func (g *Guard) HSet(ctx context.Context, key string, values ...any) (added int64, err error) {
	command := g.rdb.Pipeline().HSet(ctx, key, values...) // sends nothing; it is for the arguments
	return g.run(ctx, "hset", commandScript, []string{key}, command.Args()).Int64()
}

// Del is DEL under the fences of ctx, and returns how many keys there were. They are
// in one slot, and some 3,500 at most. The fence stays.
func (g *Guard) Del(ctx context.Context, keys ...string) (deleted int64, err error) {
	args := make([]any, 0, 1+len(keys))
	args = append(args, "DEL")
	for _, key := range keys {
		args = append(args, key)
	}
	return g.run(ctx, "del", commandScript, keys, args).Int64()
}

// Run runs a script under the fences of ctx, check and script in one: nobody gets in
// between, and a stale holder's script does not begin. At least one key is named; they
// are in one slot, and with the arguments 7,000 at most. The reply is the script's, with
// redis.Nil for nil. An error of the script is a redis.Error. What it had written before
// remains, since Redis does not undo scripts.
//
// A script that only reads makes a guarded read: none of a later fence has written
// what it returns.
func (g *Guard) Run(ctx context.Context, s *Script, keys []string, args ...any) *redis.Cmd {
	return g.run(ctx, "run", s, keys, args)
}

func (g *Guard) run(ctx context.Context, what string, s *Script, keys []string, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	name := ""
	if len(keys) > 0 {
		name = keys[0]
	}
	reply, held, err := g.enter(ctx, s, keys, args)
	if err != nil {
		err = fmt.Errorf("redisguard: %s %q: %w", what, name, err)
	}
	if definite(err) {
		g.observer.Refused(ctx, err)
	}
	if err == nil {
		g.observer.Committed(ctx, held)
		if reply == nil {
			err = redis.Nil
		}
	}
	cmd.SetVal(reply)
	cmd.SetErr(err)
	return cmd
}
