package redislock

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A script is redis.Script with fewer allocations.
type script struct {
	*redis.Script
	source string
	hash   any
}

func newScript(source string) *script {
	s := redis.NewScript(source)
	return &script{s, source, s.Hash()}
}

// A call sends a command, given as its arguments.
type call func(ctx context.Context, args []any) (any, error)

// run evaluates the script, also on a server that does not know it yet.
func (s *script) run(ctx context.Context, send call, keys []string, args []any) (any, error) {
	if ctx.Err() != nil { // a client for Cluster would not look
		return nil, context.Cause(ctx)
	}
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.hash, len(keys), keys[0])
	for i := 1; i < len(keys); i++ {
		all = append(all, &keys[i])
	}
	all = append(all, args...)
	reply, err := send(ctx, all)
	if says(err, "NOSCRIPT") {
		all[0], all[1] = "eval", s.source
		reply, err = send(ctx, all)
	}
	return reply, err
}

// command returns the command of a script's arguments.
func command(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}
