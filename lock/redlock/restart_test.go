package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
)

// The ways in which a node forgets all that it has promised.
var amnesia = map[string]func(t *testing.T, c *cluster, i int){
	"kill -9": func(t *testing.T, c *cluster, i int) {
		require.NoError(t, c.servers[i].Kill())
		require.NoError(t, c.servers[i].Restart(t.Context()))
	},
	"FLUSHALL": func(t *testing.T, c *cluster, i int) {
		require.NoError(t, c.clients[i].FlushAll(t.Context()).Err())
	},
}

// cutOff returns a back end whose node i never hears of its locks.
func (c *cluster) cutOff(t *testing.T, i int, opts ...redlock.Option) *redlock.Backend {
	t.Helper()
	clients := c.connect(t)
	g := newGate(redlock.GrantKeys)
	t.Cleanup(func() { close(g.open) })
	clients[i].AddHook(g)
	b, err := redlock.New(clients, opts...)
	require.NoError(t, err)
	return b
}

// A has nodes 0 and 1, and node 1 forgets it; nodes 1 and 2 are a majority for B.
func forgottenHolder(t *testing.T, forget func(*testing.T, *cluster, int), ttl time.Duration, opts ...redlock.Option) (a guard.Token, taken time.Time, b *redlock.Backend) {
	c := start(t, 3)
	c.establish(t)
	r := request()
	r.TTL = ttl
	taken = time.Now()
	a = take(t, c.cutOff(t, 2, append(opts, patient())...), r)
	forget(t, c, 1)
	return a, taken, c.backend(t, append(opts, patient())...)
}

func TestANodeThatForgotBreaksTheLockIfItIsTrusted(t *testing.T) {
	t.Parallel()
	for name, forget := range amnesia {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, taken, b := forgottenHolder(t, forget, time.Hour, trusting())
			take(t, b, request())
			require.Less(t, time.Since(taken), time.Hour, "two holders")
		})
	}
}

func TestANodeThatForgotHasNoVoteForATTL(t *testing.T) {
	t.Parallel()
	for name, forget := range amnesia {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			a, taken, b := forgottenHolder(t, forget, ttl)
			r := request()
			r.TTL = ttl
			_, err := b.Acquire(t.Context(), r)
			if time.Since(taken) < ttl {
				require.ErrorIs(t, err, lock.ErrHeld)
			}
			token := eventually(t, b, r, 60*time.Second)
			require.GreaterOrEqual(t, time.Since(taken), ttl, "two holders")
			require.Greater(t, token, a)
		})
	}
}

// The token of A is promised by nodes 0 and 1; node 1 forgets it, node 0 hangs, and
// node 2 never heard of it.
func forgottenToken(t *testing.T, forget func(*testing.T, *cluster, int), opts ...redlock.Option) (c *cluster, a guard.Token, b *redlock.Backend) {
	c = start(t, 3)
	c.establish(t)
	all := c.backend(t, patient())
	for range 5 {
		r := request()
		token := take(t, all, r)
		everywhere := func(is func(rdb redis.UniversalClient) bool) {
			for _, rdb := range c.clients {
				require.Eventually(t, func() bool { return is(rdb) }, 30*time.Second, time.Millisecond)
			}
		}
		everywhere(func(rdb redis.UniversalClient) bool {
			return rdb.HGet(t.Context(), all.FenceKey(), "token").Val() == token.String()
		})
		require.NoError(t, all.Release(t.Context(), r))
		everywhere(func(rdb redis.UniversalClient) bool { return rdb.Exists(t.Context(), all.LockKey(resource)).Val() == 0 })
	}
	cut := c.cutOff(t, 2, patient(), trusting())
	r := request()
	a = take(t, cut, r)
	require.NoError(t, cut.Release(t.Context(), r))
	forget(t, c, 1)
	require.NoError(t, c.servers[0].Pause())
	t.Cleanup(func() { _ = c.servers[0].Resume() })
	return c, a, c.backend(t, append(opts, redlock.WithNodeTimeout(2*time.Second))...)
}

func TestANodeThatForgotRepeatsATokenIfItIsTrusted(t *testing.T) {
	t.Parallel()
	for name, forget := range amnesia {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, a, b := forgottenToken(t, forget, trusting())
			require.Equal(t, a, take(t, b, request()), "the history no longer shows what it is for")
		})
	}
}

func TestANodeThatForgotLearnsTheCounterFromTheOthers(t *testing.T) {
	t.Parallel()
	for name, forget := range amnesia {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a, b := forgottenToken(t, forget, redlock.WithRestartDelay(time.Millisecond))
			r := request()
			var err error
			require.Eventually(t, func() bool {
				_, err = b.Acquire(t.Context(), r)
				return err == nil || strings.Contains(err.Error(), "have forgotten their counter")
			}, 60*time.Second, 10*time.Millisecond)
			require.Error(t, err, "nodes 1 and 2 do not know the greatest token")
			require.ErrorContains(t, err, "2 of 3 nodes answered")
			require.ErrorContains(t, err, "nodes[0]")

			require.NoError(t, c.servers[0].Resume())
			token := eventually(t, b, r, 60*time.Second)
			require.Greater(t, token, a)
			require.Eventually(t, func() bool { // now it counts again
				return c.clients[1].HGet(t.Context(), b.FenceKey(), "run").Val() != ""
			}, 30*time.Second, time.Millisecond)
		})
	}
}

// A token that was chosen earlier teaches nothing about the counters of now.
func TestARepeatedAcquisitionTeachesNoNode(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.establish(t)
	b := c.backend(t, redlock.WithRestartDelay(time.Millisecond), redlock.WithNodeTimeout(100*time.Millisecond))
	r := hourlong()
	token := eventually(t, b, r, 30*time.Second)
	for range 5 { // the counters go on
		other := request()
		other.Resource = "other"
		eventually(t, b, other, 30*time.Second)
		require.Eventually(t, func() bool { return b.Release(t.Context(), other) == nil }, 30*time.Second, 10*time.Millisecond)
	}
	amnesia["FLUSHALL"](t, c, 2)
	require.Eventually(t, func() bool {
		again, err := b.Acquire(t.Context(), r)
		if err == nil {
			require.Equal(t, token, again)
		}
		return c.clients[2].HGet(t.Context(), b.LockKey(resource), "token").Val() == token.String()
	}, 60*time.Second, 10*time.Millisecond)
	require.Empty(t, c.clients[2].HGet(t.Context(), b.FenceKey(), "run").Val(), "node 2 does not know the counters")
}

// The first acquisition of all cannot tell new nodes from nodes that forgot.
func TestNewNodesWaitAndNeedEachOther(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, redlock.WithRestartDelay(200*time.Millisecond), redlock.WithNodeTimeout(5*time.Second))
	_, err := b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
	require.ErrorContains(t, err, "may have forgotten")
	c.establish(t)
	require.NoError(t, c.servers[0].Pause())
	take(t, b, request())
	require.NoError(t, c.servers[0].Resume())
}

func TestALongLeaseSurvivesTheRestartOfEveryNodeInTurn(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, patient())
	c.establish(t)
	r := hourlong()
	token := take(t, b, r)
	for i := range c.servers {
		amnesia["kill -9"](t, c, i)
		require.Eventually(t, func() bool { return b.Renew(t.Context(), r) == nil }, 60*time.Second, 10*time.Millisecond)
		require.Eventually(t, func() bool {
			return c.clients[i].HGet(t.Context(), b.LockKey(resource), "nonce").Val() == r.Nonce
		}, 60*time.Second, 10*time.Millisecond, "node %d does not get the lock back", i)
	}
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, token, h.Token)
	require.NoError(t, b.Release(t.Context(), r))
	for i := range c.clients {
		require.Eventually(t, func() bool { return c.clients[i].Exists(t.Context(), b.LockKey(resource)).Val() == 0 }, 30*time.Second, time.Millisecond)
	}
}

func TestAServerThatKeepsItsRunIDToItselfIsNamed(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	require.NoError(t, c.clients[0].Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	_, err := c.backend(t, patient()).Acquire(t.Context(), request())
	require.ErrorContains(t, err, "WithRestartDelay")
	take(t, c.backend(t, patient(), trusting()), request())
}
