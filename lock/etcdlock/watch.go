package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/lock"
)

const (
	watchRetry  = 200 * time.Millisecond // before the next watch, twice as long after each failure
	watchGiveUp = 10 * time.Second       // up to this
)

// Watch implements [lock.Waiter]: it watches the one key whose end frees the lock or, in
// a queue, brings r.Nonce forward; when that has ended, the next one. Each time that a
// watch begins it wakes the waiter, who asks then: what was missed before that, to a
// compaction too, does no harm. A member that is cut off from the others ends its
// watches, and the client goes on to another.
func (b *Backend) Watch(r lock.Request) (wake <-chan struct{}, stop func()) {
	signal := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for pause := watchRetry; ctx.Err() == nil; {
			key, seen, err := b.ahead(ctx, r)
			if err == nil && b.watch(ctx, key, seen, signal) {
				pause = watchRetry
				continue
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, watchGiveUp)
		}
	}()
	return signal, cancel
}

// watch returns when it has ended, and whether that was because key did, which existed
// at the revision seen. Where seen is 0 it goes on after that: the key, that of the
// lock, will be made again.
func (b *Backend) watch(ctx context.Context, key string, seen int64, signal chan<- struct{}) (ended bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	opts := []clientv3.OpOption{clientv3.WithCreatedNotify(), clientv3.WithFilterPut()}
	if seen != 0 {
		// What ended since is gone for good: a watch from now on would sleep beside it.
		opts = append(opts, clientv3.WithRev(seen+1))
	}
	for reply := range b.client.Watch(ctx, key, opts...) {
		if reply.Err() != nil {
			return false
		}
		if reply.Created || len(reply.Events) > 0 {
			select {
			case signal <- struct{}{}:
			default: // it has a wake-up waiting
			}
		}
		if seen != 0 && len(reply.Events) > 0 {
			return true
		}
	}
	return false
}
