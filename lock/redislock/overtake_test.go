package redislock_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// A waiter as near to the server as a process that takes the lock again and again is
// overtaken by chance, and gets it before long.
func TestAWaiterIsServedBesideABusyProcess(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]time.Duration{"that does nothing": 0, "that works": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overtake(t, 30, work, 0, nil, asLocker())
		})
	}
}

// One that is farther away than they would ask when the next of them has the lock
// already, every time, if it were not noted in its turn.
func TestADistantWaiterIsServedInTurn(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]lock.Option{"": nil, "fair": {lock.WithFair()}} {
		for _, work := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
			t.Run(name+work.String(), func(t *testing.T) {
				t.Parallel()
				overtake(t, 10, work, time.Millisecond, opts, asLocker(opts...))
			})
		}
	}
}

// One that polls, as a client in another language does, never finds a lock free that
// others pass on.
func TestAPollerIsServedToo(t *testing.T) {
	t.Parallel()
	for _, work := range []time.Duration{0, 5 * time.Millisecond} {
		t.Run(work.String(), func(t *testing.T) {
			t.Parallel()
			overtake(t, 10, work, time.Millisecond, nil, asLocker(lock.WithMaxRetries(1000)))
		})
	}
}

// One in another language, that knows the scripts and no more.
func TestAPollerWithTheBareScriptIsServedToo(t *testing.T) {
	t.Parallel()
	for _, work := range []time.Duration{0, 5 * time.Millisecond} {
		t.Run(work.String(), func(t *testing.T) {
			t.Parallel()
			overtake(t, 10, work, time.Millisecond, nil, asScript)
		})
	}
}

// A taker takes the lock and gives it back.
type taker func(ctx context.Context, took func()) error

// asLocker returns what opens a taker that is a locker.
func asLocker(opts ...lock.Option) func(*testing.T, *redis.Client, string) taker {
	return func(t *testing.T, rdb *redis.Client, prefix string) taker {
		l := lockerWithPrefix(t, rdb, prefix, opts...)
		return func(ctx context.Context, took func()) error {
			s, err := l.Acquire(ctx, "inventory:sku-42")
			if err != nil {
				return err
			}
			took()
			return s.Release(ctx)
		}
	}
}

// asScript opens a taker that sends the script to acquire every 50 ms.
func asScript(t *testing.T, rdb *redis.Client, prefix string) taker {
	var acquire strings.Builder
	for _, part := range []string{"grant.lua", "../../internal/rediskeys/greater.lua", "../../internal/rediskeys/counter.lua", "notes.lua", "acquire.lua"} {
		text, err := os.ReadFile(part)
		require.NoError(t, err)
		acquire.Write(text)
	}
	script := redis.NewScript(acquire.String())
	releaser, err := redislock.New(rdb, redislock.WithPrefix(prefix))
	require.NoError(t, err)
	return func(ctx context.Context, took func()) error {
		r := request()
		k := rediskeys.Scheme{Prefix: prefix, Shards: rediskeys.Default().Shards}.Keys(r.Resource, r.Nonce)
		for ctx.Err() == nil {
			reply, err := script.Run(ctx, rdb, []string{k.Lock, k.Counter, k.Released}, r.Nonce, r.Holder, r.TTL.Milliseconds()).Result()
			if err != nil {
				return err
			}
			if _, refused := reply.([]any); !refused {
				took()
				return releaser.Release(ctx, r)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return context.Cause(ctx)
	}
}

// Processes of which each has many that wait are served in turn: none of them keeps the
// lock to its own until the others ask by themselves, a second later.
func TestCrowdsTakeTurns(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), "test-"+request().Nonce
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var holders []int
	for process := range 3 {
		l := lockerWithPrefix(t, client(t, url), prefix)
		for range 5 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = l.Do(ctx, "inventory:sku-42", func(context.Context) error {
						mu.Lock()
						holders = append(holders, process)
						mu.Unlock()
						<-time.After(time.Millisecond)
						return nil
					})
				}
			})
		}
	}
	all.Wait()
	longest, run := 0, 0
	for i, process := range holders {
		if i == 0 || holders[i-1] != process {
			run = 0
		}
		run++
		longest = max(longest, run)
	}
	t.Logf("%d holds, %d of one process in a row at most", len(holders), longest)
	require.Greater(t, len(holders), 60)
	require.Less(t, longest, 30)
}

// overtake lets a crowd of one process take the lock for work, over and over, and
// another process, for which each reply is late by distance, get it a number of times.
func overtake(t *testing.T, times int, work, distance time.Duration, theirs []lock.Option, own func(*testing.T, *redis.Client, string) taker) {
	t.Helper()
	const crowd = 8
	url, prefix := servertest.Redis(t), "test-"+request().Nonce
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.Dialer = (&cutNetwork{delay: distance}).dial
	far := redis.NewClient(o)
	t.Cleanup(func() { _ = far.Close() })
	busy, take := lockerWithPrefix(t, client(t, url), prefix, theirs...), own(t, far, prefix)

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var grants atomic.Int64
	for range crowd {
		all.Go(func() {
			for ctx.Err() == nil {
				s, err := busy.Acquire(ctx, "inventory:sku-42")
				if err != nil {
					return
				}
				grants.Add(1)
				if work > 0 {
					<-time.After(work)
				}
				_ = s.Release(ctx)
			}
		})
	}
	waits, overtaken := make([]time.Duration, times), make([]int64, times)
	for i := range times {
		busyAgain := grants.Load() + 5
		require.Eventually(t, func() bool { return grants.Load() >= busyAgain }, soon, time.Millisecond)
		before, begun := grants.Load(), time.Now()
		bounded, stop := context.WithTimeout(ctx, 5*time.Second)
		err := take(bounded, func() { waits[i], overtaken[i] = time.Since(begun), grants.Load()-before })
		require.NoError(t, err, "overtaken %d times", grants.Load()-before)
		stop()
	}
	t.Logf("waited %v at most, overtaken %d times", slices.Max(waits), slices.Max(overtaken))
}

// Nobody waits for the end of a grant to one that has gone.
func TestAPollerThatGivesUpIsGrantedNothing(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), "test-"+request().Nonce
	open := func(opts ...lock.Option) *lock.Locker { return lockerWithPrefix(t, client(t, url), prefix, opts...) }
	holder, poller, other := open(), open(lock.WithMaxRetries(3)), open()
	lease, err := holder.Acquire(t.Context(), "r")
	require.NoError(t, err)
	_, err = poller.Acquire(t.Context(), "r")
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, lease.Release(t.Context()))
	begun := time.Now()
	_, err = other.Acquire(t.Context(), "r")
	require.NoError(t, err)
	require.Less(t, time.Since(begun), time.Second)
}
