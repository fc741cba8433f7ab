package redislock_test

import (
	"crypto/rand"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// Who asks again and again changes nothing, so nothing goes to the replicas and the log.
func TestARefusalIsReplicatedOnce(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--appendonly", "yes"}})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	written := func() int {
		n, err := strconv.Atoi(rdb.InfoMap(t.Context(), "persistence").Val()["Persistence"]["aof_current_size"])
		require.NoError(t, err)
		return n
	}
	_, err = b.Acquire(t.Context(), request())
	require.NoError(t, err)
	rival := request()
	_, err = b.Acquire(t.Context(), rival)
	require.ErrorIs(t, err, lock.ErrHeld)
	before := written()
	for range 100 {
		_, err = b.Acquire(t.Context(), rival)
		require.ErrorIs(t, err, lock.ErrHeld)
	}
	require.Less(t, written(), before+1000, "each of 100 refusals was written")
}

// A service that has only ever joined does not know of the queue, and wakes the first all
// the same.
func TestAJoinerOfAFairLockWakesTheFirstOnly(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	joiner, err := redislock.New(rdb, redislock.WithPrefix(scheme.Prefix))
	require.NoError(t, err)
	turn := func(r lock.Request) error {
		_, err := b.AcquireInTurn(t.Context(), r, time.Minute)
		return err
	}
	holder, first, second := request(), request(), request()
	require.NoError(t, turn(holder))
	require.NoError(t, joiner.Join(t.Context(), holder, "second"))
	require.ErrorIs(t, turn(first), lock.ErrHeld)
	require.ErrorIs(t, turn(second), lock.ErrHeld)
	wakeFirst, stopFirst := b.Watch(first)
	defer stopFirst()
	wakeSecond, stopSecond := b.Watch(second)
	defer stopSecond()
	hear(t, wakeFirst, "not in effect")
	hear(t, wakeSecond, "not in effect")
	require.NoError(t, b.Release(t.Context(), holder))
	require.Empty(t, wakeFirst)
	require.NoError(t, joiner.Leave(t.Context(), holder, "second"))
	hear(t, wakeFirst, "its turn")
	// What is published after it comes after it.
	require.NoError(t, turn(first))
	require.NoError(t, b.Release(t.Context(), first))
	hear(t, wakeSecond, "its turn")
	require.Empty(t, wakeSecond, "was woken before its turn")
}

// The waiters of a process are woken one by one also under the keys of another library.
func TestWithKeysTheNextOfTheProcessIsWoken(t *testing.T) {
	t.Parallel()
	prefix := rand.Text()
	b, err := redislock.New(client(t, servertest.Redis(t)), redislock.WithKeys(func(r string) (string, string) { return prefix + r, prefix + "fence" }))
	require.NoError(t, err)
	l, err := lock.New(b)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	held, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	wake, stop := b.Watch(lock.Request{Resource: "inventory:sku-42"})
	defer stop()
	hear(t, wake, "not in effect")
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			s, err := l.Acquire(t.Context(), "inventory:sku-42")
			if err != nil || s.Release(t.Context()) != nil {
				t.Error("no handoff", err)
			}
		})
	}
	begun := time.Now()
	require.NoError(t, held.Release(t.Context()))
	all.Wait()
	require.Less(t, time.Since(begun), many*200*time.Millisecond, "they poll")
}

// What has left is out, whatever comes late.
func TestAJoinThatComesAfterItsLeaveIsRefused(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	r := request()
	_, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.ErrorIs(t, b.Leave(t.Context(), r, "second"), lock.ErrLost)
	require.ErrorContains(t, b.Join(t.Context(), r, "second"), "left before it arrived")
	require.NoError(t, b.Release(t.Context(), r))
	_, err = b.Acquire(t.Context(), request())
	require.NoError(t, err, "a member that nobody is holds the lock")
}

// Without memory no lock is granted, and everything else goes on.
func TestAFullRedisReleasesAndSaysWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--maxmemory-policy", "noeviction"}})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	r := request()
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
	_, err = b.Acquire(t.Context(), request())
	require.ErrorContains(t, err, "OOM")
}

// What has been released is out, whatever comes late: it takes no place in the queue, and
// does not touch the lock of those who joined.
func TestAnAcquisitionThatComesAfterItsReleaseChangesNothing(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	holder, late, next := request(), request(), request()
	_, err := b.AcquireInTurn(t.Context(), holder, time.Minute)
	require.NoError(t, err)
	require.NoError(t, b.Withdraw(t.Context(), late))
	require.ErrorIs(t, b.Release(t.Context(), late), lock.ErrLost)
	_, err = b.AcquireInTurn(t.Context(), late, time.Minute)
	require.ErrorContains(t, err, "released before it arrived")

	require.NoError(t, b.Join(t.Context(), holder, "second"))
	require.NoError(t, b.Release(t.Context(), holder))
	brief := holder
	brief.TTL = time.Second
	for _, acquire := range []func() error{
		func() error { _, err := b.Acquire(t.Context(), brief); return err },
		func() error { _, err := b.AcquireInTurn(t.Context(), brief, time.Minute); return err },
	} {
		require.ErrorContains(t, acquire(), "released before it arrived")
	}
	require.Greater(t, rdb.PTTL(t.Context(), scheme.Lock(holder.Resource)).Val(), time.Second, "the lock of the second one was cut short")

	require.NoError(t, b.Leave(t.Context(), holder, "second"))
	_, err = b.AcquireInTurn(t.Context(), next, time.Minute)
	require.NoError(t, err, "one who has gone has a place in the queue")
}
