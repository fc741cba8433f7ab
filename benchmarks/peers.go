package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-fencing/fencing/lock"
)

const ttl = 10 * time.Second

// A peer is a library, or none at all.
type peer struct {
	name string
	open func(url string) (engine, error)
	// Not on the Redis that all others share: it is measured without contention.
	elsewhere bool
}

// An engine is what one process has of a library.
type engine struct {
	// lock waits for the lock of a resource.
	lock  func(ctx context.Context, resource string) (unlock func() error, err error)
	close func()
}

var peers = []peer{
	{name: "fencing", open: func(url string) (engine, error) { return openOurs(url) }},
	{name: "fencing, fair", open: func(url string) (engine, error) { return openOurs(url, lock.WithFair()) }},
	{name: "bsm/redislock", open: openBSM},
	{name: "rueidislock", open: openRueidis},
	{name: "redsync", open: openRedsync},
	{name: "SET NX + script", open: openRaw},
	{name: "fencing, memory", open: openMemory, elsewhere: true},
	{name: "fencing, files", open: openFiles, elsewhere: true},
	{name: "fencing, Postgres", open: openPostgres, elsewhere: true},
}

func openBSM(url string) (engine, error) {
	rdb, err := client(url)
	if err != nil {
		return engine{}, err
	}
	c := bsm.New(rdb)
	// Its default does not wait at all; this is what its documentation suggests.
	patient := &bsm.Options{RetryStrategy: bsm.LinearBackoff(100 * time.Millisecond)}
	return engine{
		lock: func(ctx context.Context, resource string) (func() error, error) {
			s, err := c.Obtain(ctx, "bsm:"+resource, ttl, patient)
			if err != nil {
				return nil, err
			}
			return func() error { return s.Release(ctx) }, nil
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

// openRueidis asks for one key, as the others do, and not for its default of three.
func openRueidis(url string) (engine, error) {
	o, err := rueidis.ParseURL(url)
	if err != nil {
		return engine{}, err
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: o, KeyMajority: 1, KeyValidity: ttl, NoLoopTracking: true,
	})
	if err != nil {
		return engine{}, err
	}
	return engine{
		lock: func(ctx context.Context, resource string) (func() error, error) {
			_, cancel, err := l.WithContext(ctx, resource)
			if err != nil {
				return nil, err
			}
			return func() error { cancel(); return nil }, nil
		},
		close: l.Close,
	}, nil
}

func openRedsync(url string) (engine, error) {
	rdb, err := client(url)
	if err != nil {
		return engine{}, err
	}
	rs := redsync.New(goredis.NewPool(rdb))
	return engine{
		lock: func(ctx context.Context, resource string) (func() error, error) {
			m := rs.NewMutex("redsync:"+resource, redsync.WithExpiry(ttl), redsync.WithTries(1<<30))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return func() error {
				ok, err := m.UnlockContext(ctx)
				if err == nil && !ok {
					err = errors.New("not unlocked")
				}
				return err
			}, nil
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

// What everybody writes first, and the least that any Redis lock can do.
var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

func openRaw(url string) (engine, error) {
	rdb, err := client(url)
	if err != nil {
		return engine{}, err
	}
	return engine{
		lock: func(ctx context.Context, resource string) (func() error, error) {
			key, nonce := "raw:"+resource, rand.Text()
			for {
				err := rdb.SetArgs(ctx, key, nonce, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
				if err == nil {
					break
				}
				if !errors.Is(err, redis.Nil) {
					return nil, err
				}
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return func() error { return compareAndDelete.Run(ctx, rdb, []string{key}, nonce).Err() }, nil
		},
		close: func() { _ = rdb.Close() },
	}, nil
}
