package redisguard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/redisguard"
	"github.com/go-fencing/fencing/internal/servertest"
)

// until is a lease with a fixed deadline.
type until time.Time

func (u until) Deadline() time.Time { return time.Time(u) }

func TestObserver(t *testing.T) {
	t.Parallel()
	var events []guard.Event
	g, _, resource := shared(t, redisguard.WithObserver(func(e guard.Event) { events = append(events, e) }))
	only := func() guard.Event {
		t.Helper()
		require.Len(t, events, 1)
		e := events[0]
		events = nil
		return e
	}
	ctx, a := raised(t, g, resource, 33, "A")
	require.Equal(t, guard.EventRaised, only().Kind)
	key := g.Key(resource, "stock")
	require.NoError(t, g.Set(ctx, key, 1, 0))
	require.Empty(t, events, "under no lease")
	require.NoError(t, g.Set(guard.WithDeadline(ctx, until(time.Now().Add(-time.Hour))), key, 1, 0))
	e := only()
	require.Equal(t, guard.EventCommitted, e.Kind)
	require.Equal(t, a, e.Fence)
	require.LessOrEqual(t, e.Remaining, -time.Hour)

	require.Error(t, g.Run(ctx, redisguard.NewScript("return redis.error_reply('MINE')"), []string{key}).Err())
	require.Empty(t, events, "an error of the script's own")
	raised(t, g, resource, 34, "B")
	require.Equal(t, guard.EventRaised, only().Kind)
	require.ErrorIs(t, g.Set(ctx, key, 1, 0), guard.ErrStale)
	e = only()
	require.Equal(t, guard.EventRefused, e.Kind)
	require.Equal(t, a, e.Fence)
	require.ErrorIs(t, g.Raise(ctx, a), guard.ErrStale)
	require.Equal(t, guard.EventRefused, only().Kind)
	require.ErrorIs(t, g.Set(t.Context(), key, 1, 0), guard.ErrNoFence)
	require.ErrorIs(t, only().Err, guard.ErrNoFence)
	require.NoError(t, g.Raise(guard.Observed(ctx), fence(resource, 35, "C")))
	require.Empty(t, events, "the locker tells of it")
}

// What the README promises.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	_, plain, resource := shared(t)
	dial, trips := servertest.CountTrips()
	g := open(t, connect(t, &redis.Options{Addr: plain.Options().Addr, Dialer: dial, PoolSize: 1}))
	held := fence(resource, 33, "A")
	ctx, key := guard.NewContext(t.Context(), held), g.Key(resource, "stock")
	script := redisguard.NewScript("return redis.call('GET', KEYS[1])")
	del := func() error { _, err := g.Del(ctx, key); return err }
	refused := func() error {
		err := g.Set(guard.NewContext(t.Context(), fence(resource, 1, "B")), key, 1, 0)
		if errors.Is(err, guard.ErrStale) {
			return nil
		}
		return err
	}
	calls := map[string]func() error{
		"raise":   func() error { held.Token++; ctx = guard.NewContext(ctx, held); return g.Raise(ctx, held) },
		"set":     func() error { return g.Set(ctx, key, 1, 0) },
		"script":  func() error { _, err := g.Run(ctx, script, []string{key}).Result(); return err },
		"del":     del,
		"refused": refused,
	}
	for _, what := range []string{"raise", "set", "script", "del", "refused"} { // so that the server has the scripts
		require.NoError(t, calls[what](), what)
	}
	for _, what := range []string{"raise", "set", "script", "del", "refused"} {
		before := trips.Load()
		require.NoError(t, calls[what](), what)
		require.EqualValues(t, 1, trips.Load()-before, what)
	}
}
