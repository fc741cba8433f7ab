package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
	"github.com/go-fencing/fencing/sequencer"
	"github.com/go-fencing/fencing/sequencer/sequencertest"
)

// A gate holds back the scripts with a number of keys, of one node or of all.
type gate struct {
	keys    int
	arrived chan struct{} // receives once for each call that is held back
	open    chan struct{}
}

func newGate(keys int) *gate {
	return &gate{keys: keys, arrived: make(chan struct{}, 100), open: make(chan struct{})}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if keys, _ := redlock.KeysOf(cmd); keys == g.keys {
			g.arrived <- struct{}{}
			<-g.open
			ctx = context.WithoutCancel(ctx) // however long it took
		}
		return next(ctx, cmd)
	}
}

func (g *gate) wait(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-g.arrived:
		case <-time.After(30 * time.Second):
			t.Fatal("the call does not come")
		}
	}
}

type outcome struct {
	token guard.Token
	err   error
}

// acquire runs in the background.
func acquire(t *testing.T, b *redlock.Backend, r lock.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		token, err := b.Acquire(t.Context(), r)
		done <- outcome{token, err}
	}()
	return done
}

func hourlong() lock.Request {
	r := request()
	r.TTL = time.Hour // the client is not to give up by itself
	return r
}

// The ways to write a token back that look sufficient.
const (
	blind = `redis.call('HSET', KEYS[1], 'token', ARGV[2])
		redis.call('HSET', KEYS[2], 'token', ARGV[2])
		return {'accepted'}`
	// Like the real one, but without a look at the counter.
	ofTheHolder = `if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then return {'lost'} end ` + blind
)

// A has taken the lock on a majority and read the counters; before it writes its
// token back its locks end, by servers whose clock was set (S20), and B comes and
// goes.
func lostBeforeTheWriteBack(t *testing.T, promise string) (a, b outcome) {
	c := start(t, 3)
	clients := c.connect(t)
	g := newGate(redlock.PromiseKeys)
	for _, rdb := range clients {
		rdb.AddHook(g)
	}
	first, err := redlock.New(clients, trusting(), patient())
	require.NoError(t, err)
	second := c.backend(t, trusting(), patient())
	for range 5 { // so that there is something to repeat; with the real write-back, of which none comes late
		r := request()
		take(t, second, r)
		require.NoError(t, second.Release(t.Context(), r))
	}
	if promise != "" {
		first.WithPromise(promise)
		second.WithPromise(promise)
	}
	done := acquire(t, first, hourlong())
	g.wait(t, 3)
	for _, rdb := range c.clients {
		require.NoError(t, rdb.Del(t.Context(), first.LockKey(resource)).Err())
	}
	r := request()
	b.token, b.err = second.Acquire(t.Context(), r)
	require.NoError(t, second.Release(t.Context(), r))
	close(g.open)
	return <-done, b
}

func TestABlindWriteBackHandsOutATokenTwice(t *testing.T) {
	t.Parallel()
	a, b := lostBeforeTheWriteBack(t, blind)
	require.NoError(t, a.err)
	require.NoError(t, b.err)
	require.Equal(t, a.token, b.token, "the interleaving no longer shows what it is for")
}

func TestATokenIsWrittenBackOnlyByTheHolder(t *testing.T) {
	t.Parallel()
	a, b := lostBeforeTheWriteBack(t, "")
	require.NoError(t, b.err)
	require.ErrorIs(t, a.err, lock.ErrLost, "its lock is gone, and with it the right to the token %d", a.token)
	require.ErrorContains(t, a.err, "no longer have it")
}

// A has nodes 0 and 1 and has read their counters; node 2 is slow for it. Node 1
// loses A's lock, B gets nodes 1 and 2 and leaves again. Then A's grant from node 2
// arrives: A has a majority, but its token is B's.
func lateGrant(t *testing.T, promise string) (a, b outcome) {
	c := start(t, 3)
	clients := c.connect(t)
	grant, write := newGate(redlock.GrantKeys), newGate(redlock.PromiseKeys)
	clients[2].AddHook(grant)
	for _, rdb := range clients {
		rdb.AddHook(write)
	}
	first, err := redlock.New(clients, trusting(), redlock.WithNodeTimeout(time.Minute))
	require.NoError(t, err)
	second := c.backend(t, trusting(), patient())
	if promise != "" {
		first.WithPromise(promise)
		second.WithPromise(promise)
	}
	done := acquire(t, first, hourlong())
	grant.wait(t, 1)
	write.wait(t, 3)
	require.NoError(t, c.clients[1].Del(t.Context(), first.LockKey(resource)).Err())
	r := request()
	b.token, b.err = second.Acquire(t.Context(), r)
	require.NoError(t, second.Release(t.Context(), r))

	close(grant.open)
	require.Eventually(t, func() bool {
		return c.clients[2].Exists(t.Context(), first.LockKey(resource)).Val() == 1
	}, 30*time.Second, time.Millisecond)
	close(write.open)
	return <-done, b
}

func TestAWriteBackWithoutALookAtTheCounterHandsOutATokenTwice(t *testing.T) {
	t.Parallel()
	a, b := lateGrant(t, ofTheHolder)
	require.NoError(t, a.err)
	require.NoError(t, b.err)
	require.Equal(t, a.token, b.token, "the interleaving no longer shows what it is for")
}

func TestARefusedTokenIsProposedAnewAndGreater(t *testing.T) {
	t.Parallel()
	a, b := lateGrant(t, "")
	require.NoError(t, b.err)
	require.NoError(t, a.err)
	require.Greater(t, a.token, b.token, "A has the lock after B")
}

// Tokens of other resources, which move the same counter, refuse nobody: this many
// contenders would otherwise run out of proposals.
func TestResourcesDoNotRefuseEachOthersTokens(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	clients := c.connect(t)
	g := newGate(redlock.PromiseKeys)
	for _, rdb := range clients {
		rdb.AddHook(g)
	}
	slow, err := redlock.New(clients, trusting(), patient())
	require.NoError(t, err)
	done := acquire(t, slow, hourlong())
	g.wait(t, 3)
	quick := c.backend(t, trusting(), patient())
	other := request()
	for i := range 5 {
		other.Resource = fmt.Sprintf("other:%d", i)
		take(t, quick, other)
	}
	close(g.open)
	o := <-done
	require.NoError(t, o.err)
	require.Equal(t, guard.Token(1), o.token, "the first proposal")
}

// The rules of a sequencer hold for the tokens of the lock.
func TestTokensAreThoseOfASequencer(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	var i atomic.Int64
	sequencertest.Run(t, func(t *testing.T) sequencer.Sequencer {
		prefix := fmt.Sprintf("seq%d", i.Add(1))
		return tokens{c.backend(t, trusting(), patient(), redlock.WithPrefix(prefix))}
	})
}

type tokens struct{ *redlock.Backend }

func (s tokens) Next(ctx context.Context, resource string, after guard.Token) (guard.Token, error) {
	r := request()
	r.Resource, r.After = resource, after
	for {
		token, err := s.Acquire(ctx, r)
		if err == nil {
			return token, s.Release(ctx, r)
		}
		if !errors.Is(err, lock.ErrHeld) {
			return 0, err
		}
		select {
		case <-time.After(time.Millisecond + rand.N(20*time.Millisecond)): // as a locker does
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
