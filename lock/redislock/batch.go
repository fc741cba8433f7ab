package redislock

import (
	"context"
	"runtime"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	fewCalls   = 2   // at once, which go by themselves
	batchCalls = 256 // in one round trip
)

// A batcher lets concurrent calls share round trips. A few go by themselves, since
// a lone caller gains nothing; while they are under way further ones gather, and
// all that have gathered go together as soon as those before them have returned.
type batcher struct {
	rdb redis.UniversalClient

	mu       sync.Mutex
	calls    int // that went by themselves
	waiting  []*waitingCall
	flushing bool
}

type waitingCall struct {
	cmd  *redis.Cmd
	done chan struct{}
}

// do is a [call]. When ctx ends first, the command may still be done.
func (b *batcher) do(ctx context.Context, e *evaluation) (any, error) {
	cmd := e.command(ctx)
	b.mu.Lock()
	if b.calls < fewCalls && !b.flushing {
		b.calls++
		b.mu.Unlock()
		_ = b.rdb.Process(ctx, cmd) // cmd has it
		b.mu.Lock()
		b.calls--
		b.mu.Unlock()
		return cmd.Result()
	}
	call := &waitingCall{cmd, make(chan struct{})}
	b.waiting = append(b.waiting, call)
	if !b.flushing {
		b.flushing = true
		go b.flush()
	}
	b.mu.Unlock()
	select {
	case <-call.done:
		return cmd.Result()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// flush sends what waits until nothing does.
func (b *batcher) flush() {
	for {
		runtime.Gosched() // those who were answered may have something to add
		b.mu.Lock()
		n := min(len(b.waiting), batchCalls)
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.flushing = n > 0
		b.mu.Unlock()
		if n == 0 {
			return
		}
		// Not the context of one of them; the client's own timeouts end it.
		_, _ = b.rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error { // each command has its own error
			for _, call := range batch {
				_ = p.Process(context.Background(), call.cmd)
			}
			return nil
		})
		for _, call := range batch {
			close(call.done)
		}
	}
}
