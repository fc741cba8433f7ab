package redislock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// S21: the first copy of an acquisition comes after its second one, the release, and the
// acquisition of the next one. It is not noted either: who has gone would get the lock.
func TestS21_ALateCopyIsRefusedWhileTheNextOneHoldsTheLock(t *testing.T) {
	t.Parallel()
	b, _, _ := open(t)
	listen(t, b, request())
	for name, acquire := range map[string]func(r lock.Request) (guard.Token, error){
		"acquire":         func(r lock.Request) (guard.Token, error) { return b.Acquire(t.Context(), r) },
		"acquire waiting": func(r lock.Request) (guard.Token, error) { return b.AcquireWaiting(t.Context(), r) },
	} {
		late, next := request(), request()
		_, err := acquire(late)
		require.NoError(t, err, name)
		require.NoError(t, b.Release(t.Context(), late))
		_, err = b.Acquire(t.Context(), next)
		require.NoError(t, err, name)
		_, err = acquire(late)
		require.ErrorContains(t, err, "released before it arrived", name)
		require.NoError(t, b.Release(t.Context(), next))
		requireFree(t, b, late.Resource, name)
	}
}

// A copy is under way for certain if go-redis has sent the acquisition twice. Then it is
// refused also when others have come and gone, and with them what the lock's key says.
func TestS21_ALateCopyOfARepeatedAcquisitionIsRefusedAfterTheNextHold(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(b *redislock.Backend, r lock.Request) error{
		"release": func(b *redislock.Backend, r lock.Request) error { return b.Release(t.Context(), r) },
		"pass": func(b *redislock.Backend, r lock.Request) error {
			next := request()
			token, err := b.Pass(t.Context(), r, next)
			if err == nil && token > 0 {
				err = b.Release(t.Context(), next)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.NewRedis(t, localserver.RedisOptions{})
			var once onceDeaf
			b, err := redislock.New(once.client(t, server))
			require.NoError(t, err)
			other, err := redislock.New(client(t, server.URL()))
			require.NoError(t, err)
			pass(t, b, "inventory:sku-42") // now the server knows the scripts

			r := request()
			once.deaf.Store(true)
			token, err := b.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.EqualValues(t, 1, once.lost.Load(), "the reply was not lost")
			require.NoError(t, free(b, r))
			pass(t, other, r.Resource)
			_, err = other.Acquire(t.Context(), r) // the copy
			require.ErrorContains(t, err, "released before it arrived")
			requireFree(t, b, r.Resource, "an orphan has the lock for a whole TTL")

			next := request()
			after, err := b.Acquire(t.Context(), next)
			require.NoError(t, err)
			require.Greater(t, after, token)
			require.NoError(t, b.Release(t.Context(), next))
		})
	}
}

// Many resources with a TTL of a day must not fill the server.
func TestWhatAReleaseLeavesGoesWithinAMinute(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	for name, free := range map[string]func(r lock.Request) error{
		"release": func(r lock.Request) error { return b.Release(t.Context(), r) },
		"pass without a waiter": func(r lock.Request) error {
			// Others were refused, so it is a release.
			_, err := b.Acquire(t.Context(), request())
			require.ErrorIs(t, err, lock.ErrHeld)
			_, err = b.Pass(t.Context(), r, request())
			return err
		},
		"release that knows no TTL": func(r lock.Request) error {
			r.TTL = 0
			return b.Release(t.Context(), r)
		},
	} {
		r := request()
		r.TTL = lock.MaxTTL
		_, err := b.Acquire(t.Context(), r)
		require.NoError(t, err, name)
		require.NoError(t, free(r), name)
		requireFree(t, b, r.Resource, name)
		left := rdb.PTTL(t.Context(), scheme.Lock(r.Resource)).Val()
		require.Positive(t, left, name)
		require.LessOrEqual(t, left, time.Minute, name)
	}
}

// The late copy finds the key taken by another library, and later free.
func TestALateCopyIsRefusedBesideAnotherLibraryToo(t *testing.T) {
	t.Parallel()
	rdb := client(t, servertest.NewRedis(t, localserver.RedisOptions{}).URL())
	b, err := redislock.New(rdb, redislock.WithKeys(func(name string) (string, string) { return name, name + ":fence" }))
	require.NoError(t, err)
	r := request()
	_, err = b.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, b.Release(t.Context(), r))
	require.NoError(t, rdb.Set(t.Context(), r.Resource, "theirs", time.Minute).Err())
	_, err = b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, rdb.Del(t.Context(), r.Resource).Err())
	_, err = b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "released before it arrived")
}
