package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// tick is how often the clock of the in-process Redis is set.
const tick = 5 * time.Millisecond

// A redisStage is the Redis that the demo plays on: the user's, where it touches
// its own keys alone, or one in this process.
type redisStage struct {
	url    string
	about  string
	prefix string
	own    bool // nobody else uses it
	keys   []string
	client *goredis.Client
	stop   func()
}

// openRedis takes the user's server, or starts one if address is nil.
func openRedis(ctx context.Context, address *target.Redis, prefix string) (*redisStage, error) {
	s := &redisStage{stop: func() {}}
	if address == nil {
		server, stop, err := startRedis()
		if err != nil {
			return nil, err
		}
		s.own, s.stop = true, stop
		if address, err = target.ParseRedis(target.Setting{Source: "redis", Value: "redis://" + server.Addr()}); err != nil {
			stop()
			return nil, err
		}
	}
	var err error
	if s.client, err = address.Connect(ctx); err != nil {
		s.stop()
		return nil, err
	}
	s.url, s.prefix = address.Value, prefix
	keys := rediskeys.Default()
	keys.Prefix = prefix
	s.keys = []string{keys.Lock(resource), keys.Counter(resource)}
	if s.own {
		s.about = fmt.Sprintf("miniredis, in this process at %s", address.Options.Addr)
	} else {
		s.about = fmt.Sprintf("%s, keys %s:*", address, prefix)
	}
	if err := s.rehearse(ctx, address); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// rehearse takes a lock and frees it, so that a server that answers but does not
// do that is found out before the play.
func (s *redisStage) rehearse(ctx context.Context, address *target.Redis) error {
	locks, err := redislock.New(s.client, redislock.WithPrefix(s.prefix))
	if err != nil {
		return err
	}
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
			err = fmt.Errorf("the keys %s are left in Redis: %w", strings.Join(s.keys, ", "), err)
		}
	}
	err = errors.Join(err, s.client.Close())
	s.stop()
	return err
}

// startRedis starts a Redis on loopback, where the worker processes find it.
func startRedis() (*miniredis.Miniredis, func(), error) {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, nil, fmt.Errorf("start the in-process Redis: %w", err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // miniredis lets no time pass by itself
		defer close(stopped)
		clock := time.NewTicker(tick)
		defer clock.Stop()
		last := time.Now()
		for {
			select {
			case <-clock.C:
				now := time.Now()
				server.FastForward(now.Sub(last))
				last = now
			case <-stop:
				return
			}
		}
	}()
	return server, func() {
		close(stop)
		<-stopped
		server.Close()
	}, nil
}
