package redlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
)

// split puts the lock of a contender without token on two of four nodes.
func split(t *testing.T, nonce string, more ...any) (*cluster, *redlock.Backend, []redis.UniversalClient) {
	c := start(t, 4)
	clients := c.connect(t)
	b, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(20*time.Second))
	require.NoError(t, err)
	for _, i := range []int{0, 1} {
		fields := append([]any{"nonce", nonce, "holder", "rival", "base", "0", "try", "1"}, more...)
		require.NoError(t, c.clients[i].HSet(t.Context(), b.LockKey(resource), fields...).Err())
		require.NoError(t, c.clients[i].PExpire(t.Context(), b.LockKey(resource), time.Minute).Err())
	}
	return c, b, clients
}

func TestASplitVoteIsHeldAndFreedAtOnce(t *testing.T) {
	t.Parallel()
	for name, rival := range map[string][]any{
		"!":                {},             // goes first
		"~ with its token": {"token", "7"}, // has won
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, b, clients := split(t, name, rival...)
			var asked atomic.Int64
			clients[0].AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if keys, _ := redlock.KeysOf(cmd); keys == redlock.GrantKeys && cmd.Name() == "evalsha" {
					asked.Add(1)
				}
				return next(ctx, cmd)
			}))
			_, err := b.Acquire(t.Context(), request())
			held, ok := errors.AsType[*lock.HeldError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "rival", held.Holder)
			require.Greater(t, held.Remaining, time.Duration(0))
			require.LessOrEqual(t, asked.Load(), int64(1), "there is nothing to contest")
			for _, i := range []int{2, 3} {
				require.Eventually(t, func() bool { return c.clients[i].Exists(t.Context(), b.LockKey(resource)).Val() == 0 },
					10*time.Second, time.Millisecond, "node %d would keep it for a TTL", i)
			}
		})
	}
}

// Two of five nodes are a rival's, two are ours, and the fifth hangs: whoever waited
// for it would keep its two from everybody.
func TestASplitVoteDoesNotWaitForANodeThatHangs(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	b := c.backend(t, trusting(), redlock.WithNodeTimeout(time.Minute))
	for _, i := range []int{0, 1} {
		require.NoError(t, c.clients[i].HSet(t.Context(), b.LockKey(resource), "nonce", "!", "holder", "rival", "base", "0", "try", "1").Err())
		require.NoError(t, c.clients[i].PExpire(t.Context(), b.LockKey(resource), time.Hour).Err())
	}
	require.NoError(t, c.servers[4].Pause())
	begun := time.Now()
	_, err := b.Acquire(t.Context(), hourlong())
	require.ErrorIs(t, err, lock.ErrHeld)
	require.Less(t, time.Since(begun), 30*time.Second)
	require.NoError(t, c.servers[4].Resume())
}

// A majority refuses before the last node's reply is there: that node has the lock of
// an attempt which is over, and would keep out the next one if its holder released now.
func TestARefusedAttemptLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	clients := c.connect(t)
	b, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(time.Minute))
	require.NoError(t, err)
	for i, rdb := range clients {
		if i < 2 {
			require.NoError(t, c.clients[i].HSet(t.Context(), b.LockKey(resource), "nonce", "!", "holder", "rival", "base", "0", "token", "1").Err())
			require.NoError(t, c.clients[i].PExpire(t.Context(), b.LockKey(resource), time.Hour).Err())
		}
		rdb.AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			keys, _ := redlock.KeysOf(cmd)
			if keys == redlock.PromiseKeys { // to take it back, which has as many
				time.Sleep(20 * time.Millisecond)
			}
			err := next(ctx, cmd)
			if keys == redlock.GrantKeys && err == nil { // and not NOSCRIPT
				time.Sleep([]time.Duration{300 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second}[i])
			}
			return err
		}))
	}
	_, err = b.Acquire(t.Context(), hourlong())
	require.ErrorIs(t, err, lock.ErrHeld)
	require.Zero(t, c.clients[2].Exists(t.Context(), b.LockKey(resource)).Val())
}

func TestOneOfTheContendersOfASplitVoteWins(t *testing.T) {
	t.Parallel()
	c, b, clients := split(t, "~")
	g := newGate(redlock.GrantKeys)
	var asked atomic.Int64
	clients[0].AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if keys, _ := redlock.KeysOf(cmd); keys == g.keys && asked.Add(1) == 4 {
			for _, i := range []int{0, 1} { // the rival gives way
				_ = c.clients[i].Del(ctx, b.LockKey(resource)).Err()
			}
		}
		return next(ctx, cmd)
	}))
	take(t, b, request())
	require.GreaterOrEqual(t, asked.Load(), int64(4))
}

// Calls overtake each other: a node that hears of the token before it hears of the
// lock is told again.
func TestALateNodeIsSentTheTokenAgain(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	clients := c.connect(t)
	b, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(time.Minute))
	require.NoError(t, err)
	grant, promised := make(chan struct{}), make(chan struct{}, 10)
	clients[2].AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		keys, _ := redlock.KeysOf(cmd)
		if keys == redlock.GrantKeys {
			<-grant
		}
		err := next(ctx, cmd)
		if keys == redlock.PromiseKeys && err == nil {
			promised <- struct{}{}
		}
		return err
	}))
	token := take(t, b, hourlong())
	<-promised
	close(grant)
	require.Eventually(t, func() bool {
		return c.clients[2].HGet(t.Context(), b.LockKey(resource), "token").Val() == token.String()
	}, 30*time.Second, time.Millisecond)
}

// A waiter keeps its nonce from one attempt to the next. What the first one sent, and
// took back, must do nothing to the second when it comes late.
func TestALateAttemptHasNoEffectOnTheNextOne(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	clients := c.connect(t)
	b, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(time.Minute))
	require.NoError(t, err)
	for _, i := range []int{0, 1} {
		require.NoError(t, c.clients[i].HSet(t.Context(), b.LockKey(resource), "nonce", "!", "holder", "rival", "base", "0", "token", "1").Err())
		require.NoError(t, c.clients[i].PExpire(t.Context(), b.LockKey(resource), time.Hour).Err())
	}
	const first, second = int64(1), int64(2) // the tries
	grant, retract, promise := make(chan struct{}), make(chan struct{}), make(chan struct{})
	granted, retracted := make(chan struct{}), make(chan struct{})
	clients[2].AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		keys, args := redlock.KeysOf(cmd)
		var before, after chan struct{}
		switch {
		case keys == redlock.GrantKeys && args[3] == first:
			before, after = grant, granted
		case keys == redlock.PromiseKeys && len(args) == 3 && args[1] == first:
			before, after = retract, retracted
		case keys == redlock.PromiseKeys && len(args) == 3 && args[2] == "1":
			before = promise
		}
		if before == nil {
			return next(ctx, cmd)
		}
		<-before
		err := next(ctx, cmd)
		if after != nil && err == nil { // and not NOSCRIPT
			close(after)
		}
		return err
	}))
	r := hourlong()
	_, err = b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, lock.ErrHeld)
	for _, i := range []int{0, 1} {
		require.NoError(t, c.clients[i].Del(t.Context(), b.LockKey(resource)).Err())
	}
	token := take(t, b, r)
	require.Eventually(t, func() bool {
		return c.clients[2].HGet(t.Context(), b.LockKey(resource), "try").Val() == strconv.FormatInt(second, 10)
	}, 30*time.Second, time.Millisecond)
	for _, late := range []struct{ open, done chan struct{} }{{grant, granted}, {retract, retracted}} {
		close(late.open)
		<-late.done
	}
	close(promise)
	require.Eventually(t, func() bool {
		return c.clients[2].HGet(t.Context(), b.LockKey(resource), "token").Val() == token.String()
	}, 30*time.Second, time.Millisecond, "node 2 has no lock any more")
}

type hookFunc func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (hookFunc) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hookFunc) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hookFunc) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}
