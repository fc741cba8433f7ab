package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
	"github.com/go-fencing/fencing/sequencer"
)

// An undo may overtake the acquisition that it undoes.
func TestALateAcquireIsRefusedAfterItsRelease(t *testing.T) {
	t.Parallel()
	b := start(t, 3).backend(t, trusting(), patient())
	r := request()
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	_, err := b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "released before it arrived")
	take(t, b, request())
}

func TestARepeatedReleaseIsTheSameRelease(t *testing.T) {
	t.Parallel()
	b := start(t, 3).backend(t, trusting(), patient())
	r := request()
	take(t, b, r)
	require.NoError(t, b.Release(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
	take(t, b, request())
	require.NoError(t, b.Release(t.Context(), r), "whoever has the lock since")
	_, err := b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
}

// What one node has under our keys is no reason for the others to fail.
func TestSomebodysDataOnOneNode(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), patient())
	freed := func() { // the node that granted, in the background
		t.Helper()
		require.Eventually(t, func() bool { return c.clients[2].Exists(t.Context(), b.LockKey(resource)).Val() == 0 }, time.Minute, time.Millisecond)
	}
	for _, key := range []string{b.LockKey(resource), b.FenceKey()} {
		for i := range 2 {
			require.NoError(t, c.clients[i].Set(t.Context(), key, "precious", 0).Err())
			r := request()
			_, err := b.Acquire(t.Context(), r)
			if i == 1 {
				require.ErrorContains(t, err, "choose another prefix")
				require.NotErrorIs(t, err, lock.ErrHeld)
				freed()
			} else {
				require.NoError(t, err)
				require.NoError(t, b.Renew(t.Context(), r))
				require.NoError(t, b.Release(t.Context(), r))
			}
		}
		for i := range 2 {
			require.Equal(t, "precious", c.clients[i].Get(t.Context(), key).Val())
			require.NoError(t, c.clients[i].Del(t.Context(), key).Err())
		}
	}
	for i, hash := range []string{"theirs", "token"} {
		key := []string{b.LockKey(resource), b.FenceKey()}[i]
		for i := range 2 {
			require.NoError(t, c.clients[i].HSet(t.Context(), key, hash, "1e3").Err())
		}
		_, err := b.Acquire(t.Context(), request())
		require.ErrorContains(t, err, "choose another prefix")
		freed()
		require.Equal(t, map[string]string{hash: "1e3"}, c.clients[0].HGetAll(t.Context(), key).Val())
		for i := range 2 {
			require.NoError(t, c.clients[i].Del(t.Context(), key).Err())
		}
	}
}

func TestAReplicaIsNoNode(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	require.NoError(t, c.clients[0].ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	_, err := c.backend(t, trusting(), patient()).Acquire(t.Context(), request())
	require.ErrorContains(t, err, "read-only replica")
}

func TestScriptFlushIsNoFailure(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), patient())
	flush := func() {
		for _, rdb := range c.clients {
			require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
		}
	}
	r := request()
	take(t, b, r)
	flush()
	require.NoError(t, b.Renew(t.Context(), r))
	flush()
	require.NoError(t, b.Release(t.Context(), r))
}

func TestS18_AnImplausibleJumpIsRefused(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), patient(), redlock.WithMaxJump(100))
	r := request()
	r.After = 101
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
	r.After = 100
	require.Equal(t, guard.Token(101), eventually(t, b, r, 30*time.Second))
}

func TestABadRequestTouchesNoNode(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	r := request()
	r.After = -5
	_, err := c.backend(t, trusting(), patient()).Acquire(t.Context(), r)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.Zero(t, c.clients[0].DBSize(t.Context()).Val())
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	a := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7001"})
	b := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7002"})
	again := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7001", DB: 1, Password: "s3cret"})
	t.Cleanup(func() { _, _, _ = a.Close(), b.Close(), again.Close() })
	type nodes = []redis.UniversalClient
	for says, f := range map[string]func() (*redlock.Backend, error){
		"there are no nodes":                            func() (*redlock.Backend, error) { return redlock.New(nil) },
		"nodes[1] is nil":                               func() (*redlock.Backend, error) { return redlock.New(nodes{a, nil}) },
		"nodes[0] is nil":                               func() (*redlock.Backend, error) { return redlock.New(nodes{(*redis.Client)(nil)}) },
		"nodes[2] is the same client as nodes[0]":       func() (*redlock.Backend, error) { return redlock.New(nodes{a, b, a}) },
		"nodes[1] is at 127.0.0.1:7001, as nodes[0] is": func() (*redlock.Backend, error) { return redlock.New(nodes{a, again}) },
		"prefix is empty":                               func() (*redlock.Backend, error) { return redlock.New(nodes{a}, redlock.WithPrefix("")) },
		"option is nil":                                 func() (*redlock.Backend, error) { return redlock.New(nodes{a}, nil) },
		"jump 0 is not positive":                        func() (*redlock.Backend, error) { return redlock.New(nodes{a}, redlock.WithMaxJump(0)) },
		"timeout 0s is less":                            func() (*redlock.Backend, error) { return redlock.New(nodes{a}, redlock.WithNodeTimeout(0)) },
		"delay -1ns is not from":                        func() (*redlock.Backend, error) { return redlock.New(nodes{a}, redlock.WithRestartDelay(-1)) },
		"restart delay 48h0m0s is ":                     func() (*redlock.Backend, error) { return redlock.New(nodes{a}, redlock.WithRestartDelay(48*time.Hour)) },
	} {
		_, err := f()
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := redlock.New(nodes{a, b})
	require.NoError(t, err)
}
