package php_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// PHP that locks as wise-locksmith does, and Go on the same key.
func TestAForeignLockInPHPAndALockInGoExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := newSide(t, redislock.WithKeys(shared))
	w := start(t, s.Servers, "SHARED_KEYS=1")
	set := command{"do": "set", "key": resource, "value": "7_0.5"}
	unset := command{"do": "unset", "key": resource, "value": "7_0.5"}

	require.Equal(t, true, w.must(t, set))
	_, err := s.locker.TryAcquire(t.Context(), resource)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.ErrorContains(t, err, "another library")
	require.Contains(t, w.fails(t, command{"do": "acquire", "resource": resource}, "Held"), "another library", "nor does the client in PHP")
	waited := make(chan *lock.Lease, 1)
	go func() {
		l, err := s.locker.Acquire(t.Context(), resource)
		if err != nil {
			t.Error(err)
		}
		waited <- l
	}()
	require.EqualValues(t, 1, w.must(t, unset))
	l := <-waited
	require.NotNil(t, l)

	require.Equal(t, false, w.must(t, set), "Go has it")
	require.EqualValues(t, 0, w.must(t, unset), "what is not PHP's it does not release")
	require.NoError(t, s.write(l.Context()))
	require.NoError(t, l.Release(t.Context()))
	require.Equal(t, true, w.must(t, set))

	// It has no token. It takes one from Postgres, and is fenced as everybody else.
	f := w.must(t, command{"do": "issue", "resource": resource})
	require.Greater(t, parse(t, f).Token, l.Fence().Token)
	require.EqualValues(t, 1, w.must(t, command{"do": "writeUnder", "fence": f, "sql": update}))
	require.EqualValues(t, 1, w.must(t, unset))
	next, err := s.locker.TryAcquire(t.Context(), resource)
	require.NoError(t, err)
	require.Greater(t, next.Fence().Token, parse(t, f).Token, "the counter in Redis is repaired")
	require.Contains(t, w.fails(t, command{"do": "writeUnder", "fence": f, "sql": update}, "Stale"), "UF001")
	require.NoError(t, s.write(next.Context()))
	require.NoError(t, next.Release(t.Context()))
	require.Equal(t, 97, s.left(t))
}

func TestPHPAndGoExcludeEachOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		side    func(t *testing.T) *side
		env     string
		channel string
	}{
		"own keys": {func(t *testing.T) *side { return newSide(t) }, "", rediskeys.Default().Lock(resource)},
		"prefix": {
			func(t *testing.T) *side { return newSide(t, redislock.WithPrefix("shop")) },
			"PREFIX=shop", rediskeys.Scheme{Prefix: "shop", Shards: 256}.Lock(resource),
		},
		"shared keys":               {func(t *testing.T) *side { return newSide(t, redislock.WithKeys(shared)) }, "SHARED_KEYS=1", resource},
		"a pool, as Hyperf has one": {func(t *testing.T) *side { return newSide(t) }, "REDIS_KIND=pool", rediskeys.Default().Lock(resource)},
		"PgBouncer": {
			func(t *testing.T) *side {
				s := newSide(t)
				s.Postgres = servertest.PgBouncer(t, s.Postgres)
				return s
			}, "EMULATE_PREPARES=1", rediskeys.Default().Lock(resource),
		},
		"Cluster": {newSideInCluster, "REDIS_KIND=cluster", rediskeys.Default().Lock(resource)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.side(t)
			w := start(t, s.Servers, c.env)
			acquire := command{"do": "acquire", "resource": resource}

			f := parse(t, w.must(t, acquire))
			require.Equal(t, guard.Token(1), f.Token)
			_, err := s.locker.TryAcquire(t.Context(), resource)
			held, ok := errors.AsType[*lock.HeldError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "php", held.Holder)
			require.False(t, held.Silent, "its release is heard")
			w.must(t, command{"do": "renew", "resource": resource})
			require.EqualValues(t, 1, w.must(t, command{"do": "write", "resource": resource, "sql": update}))

			subscribe := s.rdb.Subscribe
			if _, cluster := s.rdb.(*redis.ClusterClient); cluster {
				subscribe = s.rdb.SSubscribe
			}
			heard := subscribe(t.Context(), c.channel)
			defer func() { _ = heard.Close() }()
			_, err = heard.Receive(t.Context())
			require.NoError(t, err)
			w.must(t, command{"do": "release", "resource": resource})
			message, err := heard.ReceiveTimeout(t.Context(), 20*time.Second)
			require.NoError(t, err)
			require.IsType(t, new(redis.Message), message)

			l, err := s.locker.TryAcquire(t.Context(), resource)
			require.NoError(t, err)
			require.Equal(t, guard.Token(2), l.Fence().Token, "one counter")
			require.Contains(t, w.fails(t, acquire, "Held"), "is held by go, expires in")
			require.NoError(t, s.write(l.Context()))
			require.NoError(t, l.Release(t.Context()))
			require.Equal(t, guard.Token(3), parse(t, w.must(t, acquire)).Token)
			require.Equal(t, 98, s.left(t))
		})
	}
}

// A service in Go that joins shares the lock that PHP renews and leaves.
func TestGoSharesTheLockOfPHP(t *testing.T) {
	t.Parallel()
	s := newSide(t)
	w := start(t, s.Servers)
	joined, err := s.locker.Join(t.Context(), parse(t, w.must(t, command{"do": "acquire", "resource": resource})))
	require.NoError(t, err)
	require.NoError(t, s.rdb.PExpire(t.Context(), rediskeys.Default().Lock(resource), time.Minute/4).Err())
	w.must(t, command{"do": "renew", "resource": resource})
	require.Greater(t, s.rdb.PTTL(t.Context(), rediskeys.Default().Lock(resource)).Val(), time.Minute/4)
	w.must(t, command{"do": "release", "resource": resource})
	require.NoError(t, s.write(joined.Context()))
	_, err = s.locker.TryAcquire(t.Context(), resource)
	require.ErrorIs(t, err, lock.ErrHeld, "one of two has left")
	require.NoError(t, joined.Release(t.Context()))
	w.must(t, command{"do": "acquire", "resource": resource})
}
