package redislock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
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

// A clock that jumps ahead ends the TTL of a live holder, so there are two holders
// for a while. There are never two raised fences.
func TestS20_AServerClockThatJumpsAheadNeverMakesTwoRaisedFences(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{OwnClock: true})
	p := newParty(t, func() redis.UniversalClient { return client(t, server.URL()) }, lock.WithTTL(8*time.Second))
	first, err := p.first.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	require.NoError(t, server.SetClock(10*time.Second))
	second, err := p.second.TryAcquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err, "the TTL is over by the server's clock")
	require.Greater(t, second.Fence().Token, first.Fence().Token)

	nothing := func() error { return nil }
	require.ErrorIs(t, p.store.Write(guard.NewContext(t.Context(), first.Fence()), "inventory:sku-42", nothing), guard.ErrStale)
	require.NoError(t, p.store.Write(second.Context(), "inventory:sku-42", nothing))
	require.ErrorIs(t, first.Release(t.Context()), lock.ErrLost)

	// Set back, it only keeps the lock of a dead holder for longer; a live one gives it back.
	require.NoError(t, server.SetClock(-10*time.Second))
	require.NoError(t, second.Release(t.Context()))
	p.usable("inventory:sku-42")
}

// Read, wait, write back one more, while the clock jumps by up to 10 s either way:
// no increment is lost, and the lock alone would have lost some.
func TestS20_NoUpdateIsLostWhileTheServersClockJumps(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{OwnClock: true})
	const resource = "inventory:sku-42"
	store := guard.NewMemory()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var (
		mu                     sync.Mutex
		stock, written, fenced int
		wg                     sync.WaitGroup
	)
	seen := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		return stock, written >= 100 && fenced >= 3
	}
	sell := func(s *lock.Lease) error {
		before, _ := seen()
		<-time.After(rand.N(20 * time.Millisecond))
		// Not the lease's context: a paused process would not know of its end.
		err := store.Write(guard.NewContext(ctx, s.Fence()), resource, func() error {
			mu.Lock()
			defer mu.Unlock()
			stock = before + 1
			written++
			return nil
		})
		if errors.Is(err, guard.ErrStale) {
			mu.Lock()
			defer mu.Unlock()
			fenced++
			return nil
		}
		return err
	}
	for range 4 {
		b, err := redislock.New(client(t, server.URL()))
		require.NoError(t, err)
		l, err := lock.New(b, lock.WithGuards(store), lock.WithTTL(5*time.Second))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		wg.Go(func() {
			for _, enough := seen(); !enough && ctx.Err() == nil; _, enough = seen() {
				s, err := l.Acquire(ctx, resource)
				if err == nil {
					err = sell(s)
					_ = s.Release(ctx) // lost, as often as not
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for _, enough := seen(); !enough && ctx.Err() == nil; _, enough = seen() {
			if err := server.SetClock(rand.N(20*time.Second) - 10*time.Second); err != nil {
				t.Error(err)
			}
			<-time.After(20 * time.Millisecond)
		}
	})
	wg.Wait()
	require.Equal(t, written, stock)
	require.GreaterOrEqual(t, fenced, 3, "the clock did no harm that the fence had to undo")
}
