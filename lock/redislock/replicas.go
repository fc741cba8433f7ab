package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/rediscluster"
	"github.com/go-fencing/fencing/lock"
)

// ErrReplicas: too few replicas confirmed an acquisition in time; it was taken
// back. See [WithReplicas].
var ErrReplicas = errors.New("too few replicas have the lock")

// WithReplicas makes an acquisition wait until n replicas have it, for at most
// timeout, from 1ms to 2s; otherwise Acquire frees the lock
// again and returns [ErrReplicas]. It costs the round trip to the replicas and makes
// it rarer that a failover forgets a lock, and a token. It does not prevent that:
// any other replica may be promoted, and a replica that has answered may restart
// without its data. Only a guard in the store makes up for it.
//
// It needs a *redis.Client or a *redis.ClusterClient. Renewals do not wait.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) { c.replicas, c.replicasWait, c.replicated = n, timeout, true }
}

// confirmed is a [call] that goes together with WAIT, which counts for the connection
// that wrote.
func (b *Backend) confirmed(ctx context.Context, e *evaluation) (any, error) {
	for moved := 0; ; moved++ {
		node, err := b.master(ctx, e.Lock)
		if err != nil {
			return nil, err
		}
		cmd := e.command(ctx)
		wait := redis.NewIntCmd(ctx, "wait", b.config.replicas, b.config.replicasWait.Milliseconds())
		rediscluster.Stamp(node.Pipelined(ctx, func(p redis.Pipeliner) error {
			_ = p.Process(ctx, cmd)
			_ = p.Process(ctx, wait)
			return nil
		}))
		cluster, ok := b.rdb.(*redis.ClusterClient)
		if _, elsewhere := redis.IsMovedError(cmd.Err()); elsewhere && ok && moved < 3 {
			cluster.ReloadState(ctx)
			continue
		}
		if _, refused := cmd.Val().([]any); refused || cmd.Err() != nil {
			return cmd.Result()
		}
		if wait.Err() != nil {
			return nil, wait.Err()
		}
		if n := int(wait.Val()); n < b.config.replicas {
			return nil, fmt.Errorf("%d of %d after %v: %w", n, b.config.replicas, b.config.replicasWait, ErrReplicas)
		}
		return cmd.Val(), nil
	}
}

// master returns the client of the node that has key.
func (b *Backend) master(ctx context.Context, key string) (*redis.Client, error) {
	if cluster, ok := b.rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return b.rdb.(*redis.Client), nil // New has seen to that
}

func (c config) checkReplicas(rdb redis.UniversalClient) error {
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
	default:
		return fmt.Errorf("redislock: WithReplicas needs a *redis.Client or a *redis.ClusterClient, not %T", rdb)
	}
	if c.replicas < 1 {
		return fmt.Errorf("redislock: WithReplicas: %d replicas are not at least 1", c.replicas)
	}
	if c.replicasWait < time.Millisecond || c.replicasWait > 2*time.Second { // WAIT 0 waits for ever, and the client for 3s
		return fmt.Errorf("redislock: WithReplicas: timeout %v is not from 1ms to 2s", c.replicasWait)
	}
	return nil
}

// giveBack frees a lock that too few replicas have.
func (b *Backend) giveBack(ctx context.Context, r lock.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = b.Release(ctx, r) // what remains ends with its TTL
}
