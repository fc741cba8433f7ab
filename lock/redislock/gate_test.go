package redislock_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock/redislock"
)

// A gate holds up what a client sends while it is shut, so that calls gather, and counts
// the commands that do several calls.
type gate struct {
	t       *testing.T
	b       *redislock.Backend
	shut    atomic.Pointer[chan struct{}]
	several map[string]*atomic.Int64 // by script
	refused atomic.Int64
}

func newGate(t *testing.T, rdb redis.UniversalClient, b *redislock.Backend) *gate {
	t.Helper()
	g := &gate{t: t, b: b, several: make(map[string]*atomic.Int64)}
	for _, file := range []string{"grants.lua", "releases.lua"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		count := new(atomic.Int64)
		g.several[file], g.several[string(source)], g.several[redis.NewScript(string(source)).Hash()] = count, count, count
	}
	rdb.AddHook(g)
	return g
}

func (g *gate) wait() {
	if shut := g.shut.Load(); shut != nil {
		<-*shut
	}
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.wait()
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.wait()
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			name, _ := cmd.Args()[1].(string)
			switch count := g.several[name]; {
			case count == nil || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT"):
			case cmd.Err() != nil:
				g.refused.Add(1)
			default:
				count.Add(1)
			}
		}
		return err
	}
}

// together makes n calls, of which all but the first few go in batches.
func (g *gate) together(n int, call func(i int)) {
	shut := make(chan struct{})
	g.shut.Store(&shut)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { call(i) })
	}
	gathered := false
	for begun := time.Now(); !gathered && time.Since(begun) < soon; time.Sleep(time.Millisecond) {
		gathered = g.b.CallsUnderWay() == n
	}
	g.shut.Store(nil)
	close(shut)
	all.Wait()
	require.True(g.t, gathered, "some did not call")
}
