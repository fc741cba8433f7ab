package redislock_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// listenerNote is the note of one that waits and listens, with its nonce.
var listenerNote = regexp.MustCompile(`(?m)^\?([^\t]+)\t\d+\t\d{2,}\t`)

// notedListeners returns the nonces of those who are noted under the key of a lock as
// ones who listen, in their order.
func notedListeners(t *testing.T, rdb *redis.Client, key string) (nonces []string) {
	t.Helper()
	for _, note := range listenerNote.FindAllStringSubmatch(rdb.Get(t.Context(), key).Val(), -1) {
		nonces = append(nonces, note[1])
	}
	return nonces
}

// waitForListeners returns the nonces once there are n.
func waitForListeners(t *testing.T, rdb *redis.Client, key string, n int) (nonces []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		nonces = notedListeners(t, rdb, key)
		return len(nonces) == n
	}, soon, time.Millisecond, "not noted as one who waits")
	return nonces
}

// listen returns a watch that is in effect.
func listen(t *testing.T, b *redislock.Backend, r lock.Request) (wake <-chan struct{}) {
	t.Helper()
	wake, stop := b.Watch(r)
	t.Cleanup(stop)
	hear(t, wake, "not in effect")
	return wake
}

// requireHeldAgainst asks for the lock as one who waits, and is refused.
func requireHeldAgainst(t *testing.T, b *redislock.Backend, requests ...lock.Request) {
	t.Helper()
	for _, r := range requests {
		_, err := b.AcquireWaiting(t.Context(), r)
		require.ErrorIs(t, err, lock.ErrHeld)
	}
}

// processes opens lockers, each with a client and a back end of its own, for one lock on a
// server of their own; rdb sees what is under its key.
func processes(t *testing.T, n int, opts ...lock.Option) (lockers []*lock.Locker, rdb *redis.Client, key string) {
	t.Helper()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	for range n {
		lockers = append(lockers, lockerWithPrefix(t, client(t, server.URL()), rediskeys.Default().Prefix, opts...))
	}
	return lockers, client(t, server.URL()), rediskeys.Default().Lock("inventory:sku-42")
}

// waitInBackground returns where the lease comes, which is nil after an error.
func waitInBackground(t *testing.T, l *lock.Locker) <-chan *lock.Lease {
	got := make(chan *lock.Lease, 1)
	go func() {
		s, err := l.Acquire(t.Context(), "inventory:sku-42")
		if err != nil {
			s = nil
		}
		got <- s
	}()
	return got
}

// receive returns the lease that comes.
func receive(t *testing.T, got <-chan *lock.Lease, why string) *lock.Lease {
	t.Helper()
	select {
	case s := <-got:
		require.NotNil(t, s, why)
		return s
	case <-time.After(soon):
		t.Fatal(why)
		return nil
	}
}

func TestAReleaseGrantsInTheOrderInWhichProcessesAsked(t *testing.T) {
	t.Parallel()
	lockers, rdb, key := processes(t, 4)
	s, err := lockers[0].Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	var waiting []<-chan *lock.Lease
	for i, l := range lockers[1:] {
		waiting = append(waiting, waitInBackground(t, l))
		waitForListeners(t, rdb, key, i+1)
	}
	for i, turn := range waiting {
		require.NoError(t, s.Release(t.Context()))
		next := receive(t, turn, "overtaken, or forgotten")
		require.Equal(t, s.Fence().Token+1, next.Fence().Token, "somebody had it before number %d", i)
		s = next
	}
	require.NoError(t, s.Release(t.Context()))
}

// In Cluster the message goes by the node of the slot.
func TestAReleaseGrantsInACluster(t *testing.T) {
	t.Parallel()
	const resource = "inventory:sku-42"
	c := servertest.NewRedisCluster(t, 3, 0)
	open := func() *lock.Locker {
		return lockerWithPrefix(t, clusterClient(t, c), rediskeys.Default().Prefix)
	}
	first, second := open(), open()
	held, err := first.Acquire(t.Context(), resource)
	require.NoError(t, err)
	next := waitInBackground(t, second)
	rdb, key := clusterClient(t, c), rediskeys.Default().Lock(resource)
	require.Eventually(t, func() bool { return listenerNote.MatchString(rdb.Get(t.Context(), key).Val()) }, soon, time.Millisecond)
	require.NoError(t, held.Release(t.Context()))
	s := receive(t, next, "nobody tells it")
	require.Less(t, time.Until(s.Deadline()), 3*time.Second, "it had to ask")
	require.NoError(t, s.Release(t.Context()))
}

// Both are on one back end, and so on one connection that hears of grants.
func TestAGrantIsClaimedByTheNonceThatHasIt(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	holder, first, second := request(), request(), request()
	token, err := b.Acquire(t.Context(), holder)
	require.NoError(t, err)
	wake := listen(t, b, first)
	requireHeldAgainst(t, b, first, second)
	require.NoError(t, b.Release(t.Context(), holder))
	hear(t, wake, "granted")
	_, _, ok := b.Claim(second)
	require.False(t, ok, "it was granted to the first one")
	claimed, until, ok := b.Claim(first)
	require.True(t, ok)
	require.Equal(t, token+1, claimed)
	require.LessOrEqual(t, time.Until(until), 2*time.Second)
	require.NoError(t, b.Renew(t.Context(), first), "it has the lock")
	_, _, ok = b.Claim(first)
	require.False(t, ok, "claimed twice")
}

func TestAGrantToAnotherProcessWakesNobodyHere(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	other, err := redislock.New(rdb, redislock.WithPrefix(scheme.Prefix))
	require.NoError(t, err)
	holder, first, second := request(), request(), request()
	token, err := b.Acquire(t.Context(), holder)
	require.NoError(t, err)
	wakeFirst, wakeSecond := listen(t, b, first), listen(t, other, second)
	mark := listen(t, other, lock.Request{Resource: holder.Resource, Nonce: "mark"})
	requireHeldAgainst(t, b, first)
	requireHeldAgainst(t, other, second)
	require.NoError(t, b.Release(t.Context(), holder))
	hear(t, wakeFirst, "granted")
	// What is published after it is heard after it.
	require.NoError(t, rdb.Publish(t.Context(), scheme.Lock(holder.Resource), "mark").Err())
	hear(t, mark, "it hears nothing")
	require.Empty(t, wakeSecond)
	_, _, ok := other.Claim(first)
	require.False(t, ok, "the number is not its own")
	claimed, _, ok := b.Claim(first)
	require.True(t, ok)
	require.Equal(t, token+1, claimed)
}

// The lock is granted for 2 s: less than a hundredth of this TTL, which a holder does not
// count on.
func TestAGrantOfALockWithALongTTLIsRenewed(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Minute
	lockers, rdb, key := processes(t, 2, lock.WithTTL(ttl))
	held, err := lockers[0].Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	next := waitInBackground(t, lockers[1])
	waitForListeners(t, rdb, key, 1)
	require.NoError(t, held.Release(t.Context()))
	s := receive(t, next, "nobody tells it")
	require.Equal(t, held.Fence().Token+1, s.Fence().Token)
	require.Eventually(t, func() bool { return s.Context().Err() != nil || time.Until(s.Deadline()) > ttl/2 }, soon, time.Millisecond)
	require.NoError(t, s.Context().Err(), "lost at once")
	require.Greater(t, rdb.PTTL(t.Context(), key).Val(), ttl/2)
	require.NoError(t, s.Release(t.Context()))
}

// S20: the waiter is slow to look, and the clock of the server was set forward between
// its note and the grant.
func TestS20_AGrantThatIsOverOnTheServerIsNotClaimed(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{OwnClock: true})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	holder, next := request(), request()
	_, err = b.Acquire(t.Context(), holder)
	require.NoError(t, err)
	wake := listen(t, b, next)
	requireHeldAgainst(t, b, next)
	require.NoError(t, server.SetClock(2500*time.Millisecond))
	require.NoError(t, b.Release(t.Context(), holder))
	hear(t, wake, "granted")
	require.Equal(t, "2", rdb.Get(t.Context(), rediskeys.Default().Counter(holder.Resource)).Val(), "granted")
	require.Eventually(t, func() bool {
		h, err := b.Inspect(t.Context(), holder.Resource)
		return err == nil && h.Members == 0
	}, soon, time.Millisecond, "a grant ends by itself")
	_, until, ok := b.Claim(next)
	require.False(t, ok, "claimed for %v", time.Until(until))
}

// With nobody to hear of it the lock need not lie idle for 2 s.
func TestAWaiterWhoseConnectionIsGoneIsNotGrantedTheLock(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb, dying := client(t, server.URL()), client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	dead, err := redislock.New(dying)
	require.NoError(t, err)
	holder, waiting := request(), request()
	_, err = b.Acquire(t.Context(), holder)
	require.NoError(t, err)
	listen(t, dead, waiting)
	requireHeldAgainst(t, dead, waiting)
	require.NoError(t, dying.Close())
	require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	require.NoError(t, b.Release(t.Context(), holder))
	requireFree(t, b, holder.Resource, "granted to a dead one")
}

func TestWherePublishIsForbiddenNothingIsGrantedAndWaitersPoll(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	require.NoError(t, client(t, server.URL()).Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all", "-publish").Err())
	open := func() *redislock.Backend {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "worker", Password: "secret"})
		t.Cleanup(func() { _ = rdb.Close() })
		b, err := redislock.New(rdb)
		require.NoError(t, err)
		return b
	}
	b, other := open(), open()
	holder, waiting := request(), request()
	_, err := b.Acquire(t.Context(), holder)
	require.NoError(t, err)
	listen(t, other, waiting)
	requireHeldAgainst(t, other, waiting)
	require.NoError(t, b.Release(t.Context(), holder))
	requireFree(t, b, holder.Resource, "granted to one who cannot hear of it")

	held, err := lock.New(b)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	polls, err := lock.New(other)
	require.NoError(t, err)
	t.Cleanup(func() { _ = polls.Close() })
	s, err := held.Acquire(t.Context(), holder.Resource)
	require.NoError(t, err)
	next := waitInBackground(t, polls)
	waitForListeners(t, client(t, server.URL()), rediskeys.Default().Lock(holder.Resource), 1)
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, receive(t, next, "it does not poll").Release(t.Context()))
}

// Who asks once and goes, or asks and dies, must not fill the key of a lock.
func TestNotesAreBoundedAndAListenerIsServedAmongThem(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	key := scheme.Lock("inventory:sku-42")
	try := func(waits bool) {
		ask := b.Acquire
		if waits {
			ask = b.AcquireWaiting
		}
		for range 1000 {
			_, err := ask(t.Context(), request())
			require.ErrorIs(t, err, lock.ErrHeld)
		}
	}
	holder, next := request(), request()
	token, err := b.Acquire(t.Context(), holder)
	require.NoError(t, err)
	wake := listen(t, b, next)
	try(false)
	require.Less(t, rdb.StrLen(t.Context(), key).Val(), int64(4<<10))
	requireHeldAgainst(t, b, next)
	require.NoError(t, b.Release(t.Context(), holder))
	hear(t, wake, "it is not noted")
	claimed, _, ok := b.Claim(next)
	require.True(t, ok)
	require.Equal(t, token+1, claimed)

	require.NoError(t, b.Renew(t.Context(), next))
	try(true)
	require.Less(t, rdb.StrLen(t.Context(), key).Val(), int64(10<<10))
	require.NoError(t, b.Release(t.Context(), next))
}

func TestAWaiterThatHasLeftIsNotGrantedTheLock(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	holder, gone := request(), request()
	_, err := b.Acquire(t.Context(), holder)
	require.NoError(t, err)
	listen(t, b, gone)
	requireHeldAgainst(t, b, gone)
	require.ErrorIs(t, b.Release(t.Context(), gone), lock.ErrLost)
	require.NoError(t, b.Release(t.Context(), holder))
	requireFree(t, b, holder.Resource, "granted to one who has gone")
}
