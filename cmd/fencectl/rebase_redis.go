package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// A redisCounter is the one from which a resource gets its tokens in Redis.
type redisCounter struct {
	*keyspace
	keys     rediskeys.Keys
	resource string

	value string      // what there is
	token guard.Token // as a number; 0 where it is none
	none  bool        // it is there, and no counter
}

// openCounter connects to Redis, where the lock must be free.
func (a *app) openCounter(ctx context.Context, r *rebasing) (_ *redisCounter, err error) {
	k, err := a.openRedis(ctx)
	if err != nil {
		return nil, err
	}
	c := &redisCounter{keyspace: k, keys: r.keys.scheme.Keys(r.resource, ""), resource: r.resource}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	locks, err := redislock.New(k.client, redislock.WithPrefix(r.keys.scheme.Prefix), redislock.WithShards(r.keys.scheme.Shards))
	if err != nil {
		return nil, err
	}
	held, err := locks.Inspect(ctx, r.resource)
	if err != nil {
		return nil, k.address.Unusable(err)
	}
	if held.Members > 0 {
		return nil, c.held(held)
	}
	return c, c.look(ctx)
}

func (c *redisCounter) held(h lock.Holding) error {
	return &exited{exitAnswer, fmt.Errorf("rebase: %q is held in Redis by %s with token %d, for %v unless it is renewed; wait for its release, or end its holder", c.resource, orDash(h.Holder), h.Token, h.Remaining)}
}

func (c *redisCounter) close() { _ = c.client.Close() } // what matters was answered

func (c *redisCounter) look(ctx context.Context) error {
	value, err := c.client.Get(ctx, c.keys.Counter).Result()
	switch {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("%wrebase: %s: %s has something that is no counter of lock/redislock; nothing was changed; find out whose it is (lock/redlock has a hash there: see --help), or choose another --prefix", &silent{errServer}, c.address, c.keys.Counter)
	case err != nil && !errors.Is(err, redis.Nil):
		return c.address.Unusable(err)
	}
	n, err := strconv.ParseInt(value, 10, 64)
	c.value, c.none = value, value != "" && (err != nil || n < 0 || strconv.FormatInt(n, 10) != value)
	if c.token = guard.Token(n); c.none {
		c.token = 0
	}
	return nil
}

//go:embed rebase.lua
var setCounterLua string

var setCounter = redis.NewScript(setCounterLua)

// next returns what the counter should be at, once the database has been rebased.
func (c *redisCounter) next(h heights) (to guard.Token, change bool) {
	limit := h.limit()
	if h.ceiling == 0 {
		limit = max(limit, min(h.fence, 1<<63-1-room)+room)
	}
	to = h.fence
	if c.none || c.token >= limit-1 {
		to = max(to, min(rebaseTo, limit-2)) // others were counted for here, who may have no fence
		for _, n := range h.others {
			if n < limit-1 {
				to = max(to, n)
			}
		}
		return to, true
	}
	return to, c.token < h.fence
}

// rebase sets the counter to the fence, where it is poisoned or behind.
func (c *redisCounter) rebase(ctx context.Context, h heights, do bool, result *rebased) error {
	for {
		to, changed := c.next(h)
		if !changed {
			return nil
		}
		reply := "set"
		if do {
			var err error
			reply, err = setCounter.Run(ctx, c.client, []string{c.keys.Lock, c.keys.Counter}, c.value, int64(to)).Text()
			if err != nil {
				return fmt.Errorf("%w; the database is rebased, run it again", c.address.Unusable(err))
			}
		}
		switch reply {
		case "set":
			before := c.value
			if before == "" {
				before = "none"
			} else if c.none {
				before = strconv.Quote(before[:min(len(before), 40)])
			}
			result.Changes = append(result.Changes, change{"counter " + c.keys.Counter + " in Redis", before, to.String()})
			return nil
		case "held":
			return &exited{exitAnswer, fmt.Errorf("rebase: %q was locked in Redis meanwhile; the database is rebased, run it again when the lock is free", c.resource)}
		}
		if err := c.look(ctx); err != nil { // somebody has counted
			return err
		}
	}
}
