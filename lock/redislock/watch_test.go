package redislock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// hear waits for a wake-up, for longer than any feed needs to come back.
func hear(t *testing.T, wake <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(soon):
		t.Fatal(why)
	}
}

func pass(t *testing.T, b *redislock.Backend, resource string) {
	t.Helper()
	r := request()
	r.Resource = resource
	_, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, b.Release(t.Context(), r))
}

func TestAFeedComesBackAndWakesEverybody(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	for i, breakIt := range []func(){
		func() { require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err()) },
		func() { require.NoError(t, server.Kill()); require.NoError(t, server.Restart(t.Context())) },
	} {
		resource := fmt.Sprint("inventory:", i)
		wake, stop := b.Watch(lock.Request{Resource: resource})
		hear(t, wake, "the watch is never in effect")
		breakIt()
		hear(t, wake, "a release may have been missed, and nobody is told")
		pass(t, b, resource)
		hear(t, wake, "the feed that came back is deaf")
		stop()
	}
}

func TestWatchesAreIndependent(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	one, stopOne := b.Watch(lock.Request{Resource: "one"})
	two, stopTwo := b.Watch(lock.Request{Resource: "two"})
	again, stopAgain := b.Watch(lock.Request{Resource: "two"})
	defer stopOne()
	for _, w := range []<-chan struct{}{one, two, again} {
		hear(t, w, "not in effect")
	}
	stopTwo()
	pass(t, b, "two")
	hear(t, again, "one of two watches was stopped, and both are")
	pass(t, b, "one")
	hear(t, one, "a release")
	select {
	case <-again:
		t.Fatal("woken by another resource")
	case <-two:
		t.Fatal("woken after stop")
	default:
	}
	stopAgain()
	third, stopThird := b.Watch(lock.Request{Resource: "two"})
	defer stopThird()
	hear(t, third, "a channel that lingers is in effect at once")
}

// The queue tells whose turn it is, and only that one asks.
func TestAFairReleaseWakesTheFirstOnly(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	turn := func(r lock.Request) error {
		_, err := b.AcquireInTurn(t.Context(), r, time.Minute)
		return err
	}
	holder, first, second := request(), request(), request()
	require.NoError(t, turn(holder))
	require.ErrorIs(t, turn(first), lock.ErrHeld)
	require.ErrorIs(t, turn(second), lock.ErrHeld)
	wakeFirst, stopFirst := b.Watch(first)
	defer stopFirst()
	wakeSecond, stopSecond := b.Watch(second)
	defer stopSecond()
	hear(t, wakeFirst, "not in effect")
	hear(t, wakeSecond, "not in effect")
	require.NoError(t, b.Release(t.Context(), holder))
	hear(t, wakeFirst, "its turn")
	require.NoError(t, turn(first))
	require.NoError(t, b.Release(t.Context(), first))
	hear(t, wakeSecond, "its turn")
	require.Empty(t, wakeFirst)
	require.NoError(t, turn(second))
}

// Fifty goroutines that wait are one waiter to the server.
func TestWaitersOfAProcessDoNotFloodTheServer(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.Redis(t))
	var h hook
	rdb.AddHook(&h)
	l := locker(t, rdb)
	s, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	before := h.commands.Load()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			next, err := l.Acquire(t.Context(), "inventory:sku-42")
			if err == nil {
				_ = next.Release(t.Context())
			}
		})
	}
	begun := time.Now()
	<-time.After(3 * time.Second)
	asked := h.commands.Load() - before
	// All of them once, if they came at one moment; then one of them, about once a second.
	require.LessOrEqual(t, float64(asked), 50+4*time.Since(begun).Seconds()+5)
	require.NoError(t, s.Release(t.Context()))
	all.Wait()
}

// Fault 2 of the peers: a wake-up that is missed between check and subscription.
func TestAlternatingHoldersNeverHang(t *testing.T) {
	t.Parallel()
	for name, opts := range alternations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alternate(t, 1000, opts...)
		})
	}
}

// BenchmarkAlternations is the same for as long as one likes: -benchtime 100000x. It
// fails if one of them hangs.
func BenchmarkAlternations(b *testing.B) {
	for name, opts := range alternations {
		b.Run(name, func(b *testing.B) {
			longest := alternate(b, b.N, opts...)
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}

// hang is longer than any machine lets a waiter wait who is woken.
const hang = 20 * time.Second

var alternations = map[string][]lock.Option{"plain": nil, "fair": {lock.WithFair()}}

// alternate lets two lockers take one lock n times in all, and returns the longest
// wait. Nobody asks before he is woken, or the TTL of the holder ends: a wake-up that is
// lost is a wait of half a minute, and a failure.
func alternate(t testing.TB, n int, opts ...lock.Option) time.Duration {
	t.Helper()
	prefix := rand.Text()
	store := guard.NewMemory()
	lockers := make([]*lock.Locker, 2)
	for i := range lockers {
		b, err := redislock.New(client(t, servertest.Redis(t)), redislock.WithPrefix(prefix))
		require.NoError(t, err)
		lockers[i], err = lock.New(b, append([]lock.Option{lock.WithGuards(store), lock.WithRetryWait(time.Hour)}, opts...)...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = lockers[i].Close() })
	}
	var inside, longest atomic.Int64
	take := func(l *lock.Locker) error {
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		begun := time.Now()
		s, err := l.Acquire(ctx, "inventory:sku-42")
		if err != nil {
			return fmt.Errorf("hangs: %w", err)
		}
		longest.Store(max(longest.Load(), int64(time.Since(begun)))) // one holder at a time
		if inside.Add(1) != 1 {
			t.Error("two holders")
		}
		inside.Add(-1)
		return s.Release(ctx)
	}
	var all sync.WaitGroup
	for i, l := range lockers {
		all.Go(func() {
			for turn := range (n + i) / 2 {
				if err := take(l); err != nil {
					t.Errorf("alternation %d of %d: %v", turn+1, (n+i)/2, err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Duration(longest.Load())
}

// A server that forbids the channels, or does not know them, is asked instead.
func TestWithoutPubSubWaitersPoll(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	admin := client(t, server.URL())
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "+@all", "resetchannels").Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "worker", Password: "secret"})
	t.Cleanup(func() { _ = rdb.Close() })
	l := locker(t, rdb, lock.WithRetryWait(20*time.Millisecond))
	s, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		next, err := l.Acquire(t.Context(), "inventory:sku-42")
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}()
	require.NoError(t, s.Release(t.Context()))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("the waiter hangs")
	}
}

// A feed ends by itself when nobody waits any more. (Not parallel: it counts.)
func TestNoGoroutineIsLeftOfAWait(t *testing.T) {
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	rdb := client(t, server.URL())
	l := locker(t, rdb)
	s, err := l.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	listeners := func() int {
		list, err := client(t, server.URL()).ClientList(t.Context()).Result()
		require.NoError(t, err)
		return strings.Count(list, "cmd=subscribe") + strings.Count(list, "cmd=ping")
	}
	feeds := func() int {
		all := make([]byte, 1<<20)
		return strings.Count(string(all[:runtime.Stack(all, true)]), "redislock.(*feed)")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, "inventory:sku-42")
		ended <- err
	}()
	require.Eventually(t, func() bool { return listeners() == 1 && feeds() > 0 }, soon, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Eventually(t, func() bool { return listeners() == 0 && feeds() == 0 }, soon, 50*time.Millisecond)
	require.NoError(t, s.Release(t.Context()))
}
