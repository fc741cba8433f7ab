package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

var errReplyLost = errors.New("the reply is lost")

// loseReplies makes commands fail after they have taken effect, while it is on. It
// counts all of them.
type loseReplies struct {
	on    atomic.Bool
	calls atomic.Int64
}

func (l *loseReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *loseReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.calls.Add(1)
		err := next(ctx, cmd)
		// EVALSHA of a script that is new to the server has had no effect yet.
		if l.on.Load() && cmd.Err() == nil {
			cmd.SetErr(errReplyLost)
			return errReplyLost
		}
		return err
	}
}

func (l *loseReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
