package redislock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// What others, or the server, do to the keys of a lock.

func TestAUsersStringThatBeginsAsALockDoesIsNeverChanged(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"fencing free", "fencing free of charge", "fencing free x", "fencing free x\nhello", "fencing held", "fencing club",
		"fencing held x\n", "fencing held x\nhello", "fencing held x\nhello\nyou", "fencing held x\n1\nyou",
	} {
		b, rdb, scheme := open(t)
		key := scheme.Lock("inventory:sku-42")
		require.NoError(t, rdb.Set(t.Context(), key, value, 0).Err())
		r, next := request(), request()
		after := r
		after.After = 1
		for what, call := range map[string]func() error{
			"acquire":           func() error { _, err := b.Acquire(t.Context(), r); return err },
			"acquire and wait":  func() error { _, err := b.AcquireWaiting(t.Context(), r); return err },
			"acquire in turn":   func() error { _, err := b.AcquireInTurn(t.Context(), r, time.Minute); return err },
			"acquire after one": func() error { _, err := b.Acquire(t.Context(), after); return err },
			"renew":             func() error { return b.Renew(t.Context(), r) },
			"join":              func() error { return b.Join(t.Context(), r, "second") },
			"leave":             func() error { return b.Leave(t.Context(), r, "second") },
			"pass":              func() error { _, err := b.Pass(t.Context(), r, next); return err },
			"release":           func() error { return b.Release(t.Context(), r) },
			"withdraw":          func() error { return b.Withdraw(t.Context(), r) },
			"inspect":           func() error { _, err := b.Inspect(t.Context(), r.Resource); return err },
		} {
			err := call()
			if what != "withdraw" && what != "inspect" { // which concern the queue alone, and nobody's data
				require.Error(t, err, "%s of %q", what, value)
			}
			require.Equal(t, value, rdb.Get(t.Context(), key).Val(), what)
			require.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), key).Val(), "%s of %q", what, value)
		}
	}
}

// The members are a key with a TTL, and may be evicted alone. Then nobody knows who is
// in the lock, and it is better free than nobody's.
func TestTheMembersMayBeEvictedAlone(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(b *redislock.Backend, r lock.Request) error{
		"its holder": func(b *redislock.Backend, r lock.Request) error { return b.Release(t.Context(), r) },
		"a member":   func(b *redislock.Backend, r lock.Request) error { return b.Leave(t.Context(), r, "second") },
	} {
		b, rdb, scheme := open(t)
		r := request()
		_, err := b.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.NoError(t, b.Join(t.Context(), r, "second"))
		require.NoError(t, rdb.Del(t.Context(), scheme.Keys(r.Resource, "").Members).Err())
		require.NoError(t, b.Renew(t.Context(), r))
		h, err := b.Inspect(t.Context(), r.Resource)
		require.NoError(t, err)
		require.Equal(t, 1, h.Members, "held, and said to be free")
		require.NoError(t, leave(b, r), name)
		requireFree(t, b, r.Resource, name)
		pass(t, b, r.Resource)
	}
}

// Whatever is noted of a lock, a full server says who has it, renews and frees it.
func TestAFullRedisFreesALockInEveryState(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{Args: []string{"--maxmemory-policy", "noeviction"}})
	rdb := client(t, server.URL())
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	listen(t, b, lock.Request{Resource: request().Resource})
	for state, bring := range map[string]func(r, next, third lock.Request){
		"held": func(_, _, _ lock.Request) {},
		"tried once": func(_, next, _ lock.Request) {
			_, err := b.Acquire(t.Context(), next)
			require.ErrorIs(t, err, lock.ErrHeld)
		},
		"waited for":        func(_, next, _ lock.Request) { requireHeldAgainst(t, b, next) },
		"waited for by two": func(_, next, third lock.Request) { requireHeldAgainst(t, b, next, third) },
		"shared":            func(r, _, _ lock.Request) { require.NoError(t, b.Join(t.Context(), r, "second")) },
	} {
		for what, free := range map[string]func(r, next lock.Request) error{
			"release": func(r, _ lock.Request) error { return b.Release(t.Context(), r) },
			"pass": func(r, next lock.Request) error {
				token, err := b.Pass(t.Context(), r, next)
				require.Zero(t, token)
				return err
			},
		} {
			t.Run(what+" "+state, func(t *testing.T) { // in turn: they share the server
				r, next, third := request(), request(), request()
				_, err := b.Acquire(t.Context(), r)
				require.NoError(t, err)
				bring(r, next, third)
				require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
				requireHeldAgainst(t, b, third, request())
				require.NoError(t, b.Renew(t.Context(), r))
				if state == "shared" {
					require.NoError(t, b.Leave(t.Context(), r, "second"))
				}
				require.NoError(t, free(r, next))
				requireFree(t, b, r.Resource)
				require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
				requireOnlyCountersStay(t, rdb)
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
			})
		}
	}
}

func requireOnlyCountersStay(t *testing.T, rdb *redis.Client) {
	t.Helper()
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if rdb.PTTL(t.Context(), key).Val() == -1 {
			require.True(t, strings.HasPrefix(key, "fencing:fence:"), "%s has no TTL", key)
		}
	}
}
