package redislock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// A slot whose keys have moved while its old owner still answers for it: no node has all
// keys of a script, and says TRYAGAIN. A holder releases, and who waits gets the lock,
// as soon as the slot has arrived.
func TestCallsWaitForASlotThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	const resource = "inventory:sku-42"
	ctx := t.Context()
	rdb := clusterClient(t, servertest.NewRedisCluster(t, 3, 0))
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	l, err := lock.New(b)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	held, err := l.Acquire(ctx, resource)
	require.NoError(t, err)

	arrive := moveKeys(t, rdb, rediskeys.Default().Lock(resource))
	hasty, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = b.Acquire(hasty, lock.Request{Resource: resource, Nonce: "n", TTL: time.Second})
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrHeld, "the slot is not on its way")

	require.NoError(t, b.Renew(ctx, lock.Request{Resource: resource, Nonce: held.Fence().Nonce, TTL: time.Minute}), "has one key")
	next := make(chan error, 1)
	go func() {
		next <- l.Do(ctx, resource, func(context.Context) error { return nil })
	}()
	released := make(chan error, 1)
	go func() { released <- held.Release(ctx) }()
	<-time.After(500 * time.Millisecond)
	arrive()
	require.NoError(t, <-released)
	require.NoError(t, <-next)
}
