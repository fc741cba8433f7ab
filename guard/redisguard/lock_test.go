package redisguard_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/redisguard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// Lock, fence and data in one Redis: a holder that does not notice that its lease is
// over writes nothing (S1), and a lock that has lost its counter is repaired from the
// fence (S13).
func TestS1_S13_TheLockInTheSameRedis(t *testing.T) {
	t.Parallel()
	prefix := rand.Text()
	g, rdb, resource := shared(t, redisguard.WithPrefix(prefix))
	open := func() *lock.Locker {
		b, err := redislock.New(rdb, redislock.WithPrefix(prefix))
		require.NoError(t, err)
		l, err := lock.New(b, lock.WithGuards(g), lock.WithTTL(200*time.Millisecond), lock.WithoutRenewal())
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	key := g.Key(resource, "stock")
	a, err := open().Acquire(t.Context(), resource)
	require.NoError(t, err)
	late := context.WithoutCancel(a.Context())
	require.NoError(t, g.Set(late, key, "from A", 0))

	l := open()
	b, err := l.Acquire(t.Context(), resource) // waits for the TTL
	require.NoError(t, err)
	require.ErrorIs(t, g.Set(late, key, "stale", 0), guard.ErrStale)
	require.NoError(t, g.Set(context.WithoutCancel(b.Context()), key, "from B", 0))
	_ = b.Release(t.Context()) // it may have ended

	scheme := rediskeys.Default()
	scheme.Prefix = prefix
	require.NoError(t, rdb.Del(t.Context(), scheme.Counter(resource), scheme.Lock(resource)).Err())
	c, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	require.Greater(t, c.Fence().Token, b.Fence().Token)
	require.NoError(t, g.Set(context.WithoutCancel(c.Context()), key, "from C", 0))
	require.Equal(t, "from C", rdb.Get(t.Context(), key).Val())
	_ = c.Release(t.Context())
}
