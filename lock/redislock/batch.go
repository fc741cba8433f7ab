package redislock

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/rediscluster"
	"github.com/go-fencing/fencing/internal/rediskeys"
)

const (
	fewCalls     = 4               // at once, which go by themselves
	batchCalls   = 256             // in one round trip; three keys of each are not too much for a script's unpack
	batchTimeout = 5 * time.Second // for a client whose only timeouts are those of contexts
	maxBatches   = 2               // at once: the server works on one while the client does on the other
)

// A batcher lets concurrent calls share round trips. A few go by themselves, since
// a lone caller gains nothing; while they are under way further ones gather, and
// go together in two batches that take turns.
type batcher struct {
	rdb redis.UniversalClient

	mu      sync.Mutex
	calls   int // that went by themselves
	waiting []*waitingCall
	batches int // under way
	batched int // calls in them

	scheme    rediskeys.Scheme
	oneServer atomic.Bool  // all keys of the scheme are on one
	apart     atomic.Int64 // until when calls have to go each by itself; in nanoseconds since 1970
}

// A waitingCall is in a batch, or is to be.
type waitingCall struct {
	*evaluation
	reply any
	err   error
	done  chan struct{} // has room for one
	left  atomic.Bool   // nobody waits for the outcome any more
}

var waitingCalls = sync.Pool{New: func() any { return &waitingCall{done: make(chan struct{}, 1)} }}

// finish tells who waits for c, which belongs to them again.
func (c *waitingCall) finish(reply any, err error) {
	c.reply, c.err = reply, err
	c.done <- struct{}{}
}

// do is a [call]. When ctx ends first, the command may still be done.
func (b *batcher) do(ctx context.Context, e *evaluation) (any, error) {
	b.mu.Lock()
	if b.calls < fewCalls && b.batches == 0 {
		b.calls++
		b.mu.Unlock()
		cmd := e.command(ctx)
		_ = b.rdb.Process(ctx, cmd) // cmd has it
		b.mu.Lock()
		b.calls--
		b.mu.Unlock()
		return cmd.Result()
	}
	call := waitingCalls.Get().(*waitingCall)
	call.evaluation = e
	b.waiting = append(b.waiting, call)
	if b.batches < maxBatches {
		b.batches++
		go b.flush()
	}
	b.mu.Unlock()
	select {
	case <-call.done:
		reply, err := call.reply, call.err
		call.evaluation, call.reply, call.err = nil, nil, nil
		waitingCalls.Put(call)
		return reply, err
	case <-ctx.Done():
		call.left.Store(true)
		return nil, context.Cause(ctx)
	}
}

// flush sends what waits until nothing does.
func (b *batcher) flush() {
	for {
		runtime.Gosched() // those who were answered may have something to add
		batch := b.next()
		if batch == nil {
			return
		}
		for bundles := b.bundles(batch); len(bundles) > 0; {
			bundles = b.send(bundles)
		}
		b.mu.Lock()
		b.batched -= len(batch)
		b.mu.Unlock()
	}
}

// send sends bundles in one round trip, and returns what has to be sent instead of
// those of which nothing came.
func (b *batcher) send(bundles []*bundle) (instead []*bundle) {
	// Not the context of one of them; the client's own timeouts end it.
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	rediscluster.Stamp(b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, u := range bundles {
			_ = p.Process(ctx, u.command(ctx))
		}
		return nil
	}))
	for _, u := range bundles {
		instead = append(instead, u.deliver(b)...)
	}
	return instead
}

// next takes the calls of one batch: a fair share, so that the other one is not left
// with the rest. With nothing to take it ends the flush.
func (b *batcher) next() []*waitingCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	share := (len(b.waiting) + b.batched + maxBatches - 1) / maxBatches
	n := min(len(b.waiting), share, batchCalls)
	if n == 0 {
		b.batches--
		return nil
	}
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.batched += n
	return batch
}

// batchers has one batcher for each node, so that a node that hangs costs the locks of
// the others nothing.
type batchers struct {
	rdb    redis.UniversalClient
	scheme rediskeys.Scheme
	mu     sync.Mutex
	of     map[string]*batcher // by the node's address
}

// do is a [call].
func (bs *batchers) do(ctx context.Context, e *evaluation) (any, error) {
	return bs.get(bs.node(ctx, e.Lock)).do(ctx, e)
}

func (bs *batchers) get(node string) *batcher {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.of[node]
	if b == nil {
		b = &batcher{rdb: bs.rdb, scheme: bs.scheme}
		bs.of[node] = b
	}
	return b
}

// node returns the address of the node that has key, "" if it is the only one or
// unknown.
func (bs *batchers) node(ctx context.Context, key string) string {
	switch rdb := bs.rdb.(type) {
	case *redis.ClusterClient:
		if node, err := rdb.MasterForKey(ctx, key); err == nil {
			return node.Options().Addr
		}
	case *redis.Ring:
		if node, err := rdb.GetShardClientForKey(key); err == nil {
			return node.Options().Addr
		}
	}
	return ""
}
