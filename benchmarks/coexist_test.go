package main

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// While a service migrates from another library, its new processes and the old ones
// exclude each other: WithKeys takes the key that the old ones lock.
func TestWithKeysExcludesTheOtherLibrary(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(rdb *redis.Client) func(ctx context.Context, key string) (unlock func() error, err error){
		"redsync": func(rdb *redis.Client) func(context.Context, string) (func() error, error) {
			rs := redsync.New(goredis.NewPool(rdb))
			return func(ctx context.Context, key string) (func() error, error) {
				m := rs.NewMutex(key, redsync.WithExpiry(time.Minute), redsync.WithTries(1))
				return func() error { _, err := m.UnlockContext(ctx); return err }, m.TryLockContext(ctx)
			}
		},
		"bsm/redislock": func(rdb *redis.Client) func(context.Context, string) (func() error, error) {
			c := bsm.New(rdb)
			return func(ctx context.Context, key string) (func() error, error) {
				s, err := c.Obtain(ctx, key, time.Minute, nil)
				return func() error { return s.Release(ctx) }, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, err := client(servertest.Redis(t))
			require.NoError(t, err)
			t.Cleanup(func() { _ = rdb.Close() })
			prefix := rand.Text() + ":"
			b, err := redislock.New(rdb, redislock.WithKeys(func(resource string) (string, string) {
				return prefix + resource, prefix + "tokens"
			}))
			require.NoError(t, err)
			ours, err := lock.New(b)
			require.NoError(t, err)
			t.Cleanup(func() { _ = ours.Close() })
			theirs := open(rdb)
			ctx := t.Context()

			unlock, err := theirs(ctx, prefix+"sku-42")
			require.NoError(t, err)
			_, err = ours.TryAcquire(ctx, "sku-42")
			require.ErrorIs(t, err, lock.ErrHeld, "they hold it")
			got := make(chan *lock.Lease, 1)
			go func() {
				if s, err := ours.Acquire(ctx, "sku-42"); err == nil {
					got <- s
				}
			}()
			require.NoError(t, unlock())
			var s *lock.Lease
			select {
			case s = <-got:
			case <-time.After(time.Minute):
				t.Fatal("their release is never noticed")
			}
			_, err = theirs(ctx, prefix+"sku-42")
			var taken *redsync.ErrTaken
			require.True(t, errors.Is(err, bsm.ErrNotObtained) || errors.As(err, &taken), "to them it is a lock that somebody holds: %v", err)
			require.NoError(t, s.Release(ctx))
			unlock, err = theirs(ctx, prefix+"sku-42")
			require.NoError(t, err)
			require.NoError(t, unlock())
		})
	}
}
