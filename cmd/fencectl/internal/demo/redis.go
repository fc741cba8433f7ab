package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// A redisStage is the Redis that the demo plays on: the user's, where it touches
// its own keys alone, or one in this process.
type redisStage struct {
	url    string
	about  string
	own    bool // nobody else uses it
	scheme rediskeys.Scheme
	keys   []string // to delete
	client *goredis.Client
	stop   func()
}

// openRedis takes the user's server, or starts one if address is nil.
func openRedis(ctx context.Context, address *target.Redis, prefix string) (*redisStage, error) {
	s := &redisStage{stop: func() {}}
	if address == nil {
		addr, stop, err := localserver.StartMiniredis()
		if err != nil {
			return nil, err
		}
		s.own, s.stop = true, stop
		if address, err = target.ParseRedis(target.Setting{Source: "redis", Value: "redis://" + addr}); err != nil {
			stop()
			return nil, err
		}
	}
	var err error
	if s.client, err = address.Connect(ctx); err != nil {
		s.stop()
		return nil, err
	}
	s.url = address.Value
	s.scheme = rediskeys.Default()
	s.scheme.Prefix = prefix
	s.keys = []string{s.scheme.Lock(resource), s.scheme.Counter(resource)}
	if s.own {
		s.about = fmt.Sprintf("miniredis, in this process at %s", address.Options.Addr)
	} else {
		s.about = fmt.Sprintf("%s, keys %s:*", address, prefix)
	}
	if err := s.rehearse(ctx, address); err != nil {
		return nil, errors.Join(err, detached(ctx, s.close))
	}
	return s, nil
}

// rehearse takes a lock and frees it, so that a server that answers but does not
// do that is found out before the play.
func (s *redisStage) rehearse(ctx context.Context, address *target.Redis) error {
	locks, err := redislock.New(s.client, redislock.WithPrefix(s.scheme.Prefix))
	if err != nil {
		return err
	}
	s.know("rehearsal")
	r := lock.Request{Resource: resource, Nonce: "rehearsal", Holder: "fencectl demo", TTL: time.Minute}
	_, err = locks.Acquire(ctx, r)
	if err == nil {
		err = locks.Release(ctx, r)
	}
	if err != nil {
		return address.Unusable(err)
	}
	return s.client.Del(ctx, s.keys...).Err()
}

// know notes an acquisition, whose release leaves a mark. That of one which nobody
// told the director of goes by itself, within seconds.
func (s *redisStage) know(nonce string) {
	s.keys = append(s.keys, s.scheme.Keys(resource, nonce).Released)
}

// forget is what a FLUSHALL, a failover or an old snapshot does: lock and counter
// are gone.
func (s *redisStage) forget(ctx context.Context) error {
	if s.own {
		return s.client.FlushAll(ctx).Err()
	}
	return s.client.Del(ctx, s.keys...).Err()
}

func (s *redisStage) close(ctx context.Context) error {
	var err error
	if !s.own {
		if err = s.client.Del(ctx, s.keys...).Err(); err != nil {
			err = fmt.Errorf("the keys %s:* may be left in Redis: %w", s.scheme.Prefix, err)
		}
	}
	err = errors.Join(err, s.client.Close())
	s.stop()
	return err
}
