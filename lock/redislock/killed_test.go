package redislock_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// waitEnv, which has the prefix of the keys, makes the test binary a process that waits
// for a lock.
const (
	waitEnv       = "REDISLOCK_TEST_WAIT"
	waitServerEnv = "REDISLOCK_TEST_WAIT_SERVER"
)

func waitUntilKilled(prefix string) error {
	o, err := redis.ParseURL(os.Getenv(waitServerEnv))
	if err != nil {
		return err
	}
	b, err := redislock.New(redis.NewClient(o), redislock.WithPrefix(prefix))
	if err != nil {
		return err
	}
	l, err := lock.New(b, lock.WithTTL(lock.MaxTTL))
	if err != nil {
		return err
	}
	_, err = l.Acquire(context.Background(), "inventory:sku-42")
	return fmt.Errorf("it is to be killed while it waits: %w", err)
}

// The lock may be granted to a process that was killed while it waited for it, and lies
// idle then for as long as a grant lives that nobody renews, however long the TTL.
func TestAWaiterThatIsKilledCostsTheNextOneSeconds(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), "test-"+request().Nonce
	rdb, key := client(t, url), rediskeys.Scheme{Prefix: prefix, Shards: rediskeys.Default().Shards}.Lock("inventory:sku-42")
	open := func() *lock.Locker {
		return lockerWithPrefix(t, client(t, url), prefix, lock.WithTTL(lock.MaxTTL))
	}
	holder, waiter := open(), open()
	held, err := holder.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)

	killed := exec.CommandContext(t.Context(), os.Args[0])
	killed.Env = append(os.Environ(), waitEnv+"="+prefix, waitServerEnv+"="+url)
	require.NoError(t, killed.Start())
	waitForListeners(t, rdb, key, 1)
	next := waitInBackground(t, waiter)
	waitForListeners(t, rdb, key, 2)
	require.NoError(t, killed.Process.Kill())
	require.Error(t, killed.Wait())

	begun := time.Now()
	require.NoError(t, held.Release(t.Context()))
	s := receive(t, next, "a dead one has the lock")
	require.Less(t, time.Since(begun), 10*time.Second, "a grant lives for 2 s, and who waits asks about once a second")
	require.NoError(t, s.Release(t.Context()))
}
