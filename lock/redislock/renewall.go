package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/rediscluster"
	"github.com/go-fencing/fencing/lock"
)

// RenewAll implements [lock.BatchRenewer] with a pipeline; in Cluster with one for
// each node, so that a node that hangs costs the leases of the others nothing.
func (b *Backend) RenewAll(ctx context.Context, requests []lock.Request) []error {
	groups := b.byNode(ctx, requests)
	if len(groups) == 1 {
		return b.renewGroup(ctx, groups[0])
	}
	// What has come in must be reported before the caller stops listening.
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*9/10)
		defer cancel()
	}
	type outcome struct {
		group *group
		errs  []error
	}
	done := make(chan outcome, len(groups))
	for _, g := range groups {
		go func() { done <- outcome{g, b.renewGroup(ctx, g)} }()
	}
	errs := make([]error, len(requests))
	for i, r := range requests {
		errs[i] = fmt.Errorf("redislock: renew %q: its node has not answered: %w", r.Resource, context.DeadlineExceeded)
	}
	for range groups {
		select {
		case o := <-done:
			for i, at := range o.group.at {
				errs[at] = o.errs[i]
			}
		case <-ctx.Done():
			return errs
		}
	}
	return errs
}

// A group is the requests that go to one node.
type group struct {
	requests []lock.Request
	locks    []string // their keys
	at       []int    // their places among all
}

func (b *Backend) byNode(ctx context.Context, requests []lock.Request) []*group {
	var groups []*group
	nodes := make(map[string]*group)
	for i, r := range requests {
		key := b.config.usual(r.Resource, "").Lock
		node := b.calls.node(ctx, key)
		g := nodes[node]
		if g == nil {
			g = new(group)
			nodes[node], groups = g, append(groups, g)
		}
		g.requests, g.locks, g.at = append(g.requests, r), append(g.locks, key), append(g.at, i)
	}
	return groups
}

func (b *Backend) renewGroup(ctx context.Context, g *group) []error {
	errs := make([]error, len(g.requests))
	for i, r := range g.requests {
		errs[i] = r.Validate()
	}
	cmds := b.pipeline(ctx, g, errs, renewScript.EvalSha)
	if slices.ContainsFunc(cmds, func(c *redis.Cmd) bool { return c != nil && says(c.Err(), "NOSCRIPT") }) {
		// To load it would ask every node, also those that hang.
		cmds = b.pipeline(ctx, g, errs, renewScript.Eval)
	}
	for i, r := range g.requests {
		switch {
		case cmds[i] == nil, cmds[i].Val() == int64(1):
		case cmds[i].Val() == int64(-1):
			errs[i] = b.renewShared(ctx, b.evaluation(r, ""))
		default:
			errs[i] = b.outcome("renew", b.evaluation(r, ""), cmds[i].Val(), cmds[i].Err())
		}
	}
	return errs
}

// pipeline sends the requests without an error, and returns nil for the others.
func (b *Backend) pipeline(ctx context.Context, g *group, errs []error, eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(g.requests))
	rediscluster.Stamp(b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, r := range g.requests {
			if errs[i] == nil {
				cmds[i] = eval(ctx, p, g.locks[i:i+1], r.Nonce, milliseconds(r.TTL))
			}
		}
		return nil
	}))
	return cmds
}
