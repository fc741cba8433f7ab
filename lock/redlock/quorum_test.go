package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
	"github.com/go-fencing/fencing/sequencer"
)

func isHeld(err error) bool { return errors.Is(err, lock.ErrHeld) }

// A node that is down and one that hangs cost nothing: nobody waits for them.
func TestAMinorityDownChangesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	b := c.backend(t, trusting(), redlock.WithNodeTimeout(time.Minute))
	require.NoError(t, c.servers[1].Kill())
	require.NoError(t, c.servers[3].Pause())
	begun := time.Now()
	r := hourlong()
	last := guard.Token(0)
	for range 3 {
		token := take(t, b, r)
		require.Greater(t, token, last)
		last = token
		require.NoError(t, b.Renew(t.Context(), r))
		h, err := b.Inspect(t.Context(), resource)
		require.NoError(t, err)
		require.Equal(t, token, h.Token)
		_, err = b.Acquire(t.Context(), request())
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, b.Release(t.Context(), r))
		r.Nonce += "+"
	}
	require.Less(t, time.Since(begun), 30*time.Second, "somebody waited for a node that does not answer")
	require.NoError(t, c.servers[3].Resume())
}

func TestAMajorityDownIsAClearError(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), redlock.WithNodeTimeout(300*time.Millisecond))
	held := hourlong()
	held.Resource = "held"
	take(t, b, held)
	for _, i := range []int{0, 2} {
		require.NoError(t, c.servers[i].Pause())
	}
	r := hourlong()
	_, err := b.Acquire(t.Context(), r)
	require.ErrorContains(t, err, `redlock: acquire "inventory:sku-42": `)
	require.ErrorContains(t, err, "of 3 nodes answered, a majority of 2 is needed: nodes[")
	require.NotErrorIs(t, err, lock.ErrHeld)
	require.NotErrorIs(t, err, lock.ErrLost)
	for _, err := range []error{b.Renew(t.Context(), held), b.Release(t.Context(), held)} {
		require.ErrorContains(t, err, "of 3 nodes answered, a majority of 2 is needed")
		require.NotErrorIs(t, err, lock.ErrLost, "nobody said so")
	}
	_, err = b.Inspect(t.Context(), resource)
	require.ErrorContains(t, err, "a majority of 2 is needed")

	for _, i := range []int{0, 2} {
		require.NoError(t, c.servers[i].Resume())
	}
	for i, rdb := range c.clients {
		require.Eventually(t, func() bool { return rdb.Exists(t.Context(), b.LockKey(resource)).Val() == 0 },
			30*time.Second, time.Millisecond, "node %d keeps the lock of an attempt that failed", i)
	}
	next := hourlong()
	eventually(t, b, next, 30*time.Second)
	require.NoError(t, b.Release(t.Context(), next))
}

func TestKilledNodesAreNamed(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var clients []redis.UniversalClient
	for _, s := range c.servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1})
		t.Cleanup(func() { _ = rdb.Close() })
		clients = append(clients, rdb)
	}
	b, err := redlock.New(clients, trusting(), patient())
	require.NoError(t, err)
	require.NoError(t, c.servers[0].Kill())
	require.NoError(t, c.servers[1].Kill())
	_, err = b.Acquire(t.Context(), request())
	require.ErrorContains(t, err, "1 of 3 nodes answered, a majority of 2 is needed: nodes[")
	require.ErrorContains(t, err, "connection refused")
}

// Extending a rival's lock is the fault of some peers.
func TestARenewalNeverTouchesARival(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	b := c.backend(t, trusting(), patient())
	old := hourlong()
	old.TTL = 2 * time.Hour
	take(t, b, old)
	steal := func(i int, nonce string) {
		key := b.LockKey(resource)
		require.NoError(t, c.clients[i].Del(t.Context(), key).Err())
		require.NoError(t, c.clients[i].HSet(t.Context(), key, "nonce", nonce, "holder", "rival", "base", "5", "token", "6").Err())
		require.NoError(t, c.clients[i].PExpire(t.Context(), key, time.Minute).Err())
	}
	untouched := func(i int) {
		key := b.LockKey(resource)
		require.Equal(t, "rival", c.clients[i].HGet(t.Context(), key, "holder").Val())
		require.LessOrEqual(t, c.clients[i].PTTL(t.Context(), key).Val(), time.Minute)
	}
	steal(2, "rival")
	require.NoError(t, b.Renew(t.Context(), old), "a majority is still its own")
	untouched(2)
	steal(1, "rival")
	require.ErrorIs(t, b.Renew(t.Context(), old), lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), old), lock.ErrLost)
	untouched(1)
	untouched(2)
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, "rival", h.Holder)
	require.Equal(t, guard.Token(6), h.Token)
}

// two of five say yes, two say no, and one does not answer.
func TestAnUndecidableOutcomeIsNoLoss(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	b := c.backend(t, trusting(), redlock.WithNodeTimeout(time.Second))
	r := hourlong()
	take(t, b, r)
	for _, i := range []int{0, 1} {
		require.Eventually(t, func() bool { return c.clients[i].Del(t.Context(), b.LockKey(resource)).Val() == 1 }, 30*time.Second, time.Millisecond)
	}
	require.NoError(t, c.servers[4].Pause())
	for _, err := range []error{b.Renew(t.Context(), r), b.Release(t.Context(), r)} {
		require.ErrorContains(t, err, "4 of 5 nodes answered, a majority of 3 is needed: nodes[4]: no answer")
		require.NotErrorIs(t, err, lock.ErrLost)
	}
	require.NoError(t, c.servers[4].Resume())
}

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
			c, b, _ := split(t, name, rival...)
			_, err := b.Acquire(t.Context(), request())
			held, ok := errors.AsType[*lock.HeldError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "rival", held.Holder)
			require.Greater(t, held.Remaining, time.Duration(0))
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

type hookFunc func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (hookFunc) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hookFunc) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hookFunc) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// A node that hangs does not collect the goroutines of all calls.
func TestASilentNodeIsSpared(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var clients []redis.UniversalClient
	for _, s := range c.servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: time.Minute})
		t.Cleanup(func() { _ = rdb.Close() })
		clients = append(clients, rdb)
	}
	var now, most atomic.Int64
	clients[2].AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		for n, m := now.Add(1), most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		defer now.Add(-1)
		return next(ctx, cmd)
	}))
	b, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, c.servers[2].Pause())
	for range redlock.MaxSilent * 2 {
		r := request()
		if _, err := b.Acquire(t.Context(), r); err == nil { // a millisecond may be too short for the others
			_ = b.Release(t.Context(), r)
		}
	}
	require.LessOrEqual(t, most.Load(), int64(redlock.MaxSilent+3))
	require.NoError(t, c.servers[2].Resume())
	require.Eventually(t, func() bool { return now.Load() == 0 }, 60*time.Second, time.Millisecond)
}

// The time of an acquisition counts from its start.
func TestAnAcquisitionThatTakesATTLIsLost(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	clients := c.connect(t)
	const ttl = 9 * time.Second
	clients[0].AddHook(hookFunc(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if keys, _ := redlock.KeysOf(cmd); err == nil && (keys == redlock.GrantKeys || keys == redlock.PromiseKeys) {
			time.Sleep(ttl / 4) // the reply is slow; below a third, at which it would be given up
		}
		return err
	}))
	b, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(time.Hour))
	require.NoError(t, err)
	b.WithPromise(`if redis.call('INCR', 'proposals') < 3 then return {'refused', '1'} end return {'accepted'}`)
	r := request()
	r.TTL = ttl
	_, err = b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, lock.ErrLost)
	require.ErrorContains(t, err, "its TTL of 9s ended before a majority agreed")
}

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
	for _, key := range []string{b.LockKey(resource), b.FenceKey()} {
		for i := range 2 {
			require.NoError(t, c.clients[i].Set(t.Context(), key, "precious", 0).Err())
			r := request()
			_, err := b.Acquire(t.Context(), r)
			if i == 1 {
				require.ErrorContains(t, err, "choose another prefix")
				require.NotErrorIs(t, err, lock.ErrHeld)
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

func TestBadRequestsTouchNothing(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	b := c.backend(t, trusting(), patient())
	for says, spoil := range map[string]func(r *lock.Request){
		"TTL 0s":             func(r *lock.Request) { r.TTL = 0 },
		"TTL -1s":            func(r *lock.Request) { r.TTL = -time.Second },
		"TTL 2562047h":       func(r *lock.Request) { r.TTL = 1<<63 - 1 },
		"above -5":           func(r *lock.Request) { r.After = -5 },
		"the nonce is empty": func(r *lock.Request) { r.Nonce = "" },
		"resource name":      func(r *lock.Request) { r.Resource = "" },
	} {
		r := request()
		spoil(&r)
		_, err := b.Acquire(t.Context(), r)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
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
