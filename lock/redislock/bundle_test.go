package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

func TestTheUsualCallsOfABatchAreOneCommand(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	g := newGate(t, rdb, b)
	requests := make([]lock.Request, 2*many)
	for i := range requests {
		requests[i] = request()
		requests[i].Resource, requests[i].Holder, requests[i].TTL = order(i), fmt.Sprint("web-", i%2), time.Duration(20+20*(i%3))*time.Second
	}
	for range 3 {
		tokens, errs := make([]guard.Token, len(requests)), make([]error, len(requests))
		for i := range requests {
			requests[i].Nonce = request().Nonce
		}
		g.together(len(requests), func(i int) { tokens[i], errs[i] = b.Acquire(t.Context(), requests[i]) })
		for i, r := range requests {
			require.NoError(t, errs[i])
			value := rdb.Get(t.Context(), scheme.Lock(r.Resource)).Val()
			require.True(t, strings.HasPrefix(value, fmt.Sprintf("fencing held %s\n%d\n%s\n", r.Nonce, tokens[i], r.Holder)), value)
			left := rdb.PTTL(t.Context(), scheme.Lock(r.Resource)).Val()
			require.LessOrEqual(t, left, r.TTL)
			require.Greater(t, left, r.TTL-15*time.Second)
		}
		g.together(len(requests), func(i int) { errs[i] = b.Release(t.Context(), requests[i]) })
		for i, r := range requests {
			require.NoError(t, errs[i])
			require.Equal(t, "fencing free "+r.Nonce+"\n", rdb.Get(t.Context(), scheme.Lock(r.Resource)).Val())
			require.Greater(t, rdb.PTTL(t.Context(), scheme.Lock(r.Resource)).Val(), time.Duration(0))
		}
	}
	require.Positive(t, g.several["grants.lua"].Load())
	require.Positive(t, g.several["releases.lua"].Load())
}

// What a call finds makes no difference to the others of its batch, and its outcome is
// the one that it would have alone.
func TestACallHasTheSameOutcomeInABatch(t *testing.T) {
	t.Parallel()
	b, rdb, scheme := open(t)
	g := newGate(t, rdb, b)
	ctx := t.Context()
	set := func(key string) { require.NoError(t, rdb.Set(ctx, key, "mine", 0).Err()) }
	taken := func(r lock.Request) {
		r.Nonce = "another, not " + r.Nonce
		acquired(t, b, r)
	}
	const left = "that it has left" // for which all of the batch go by themselves
	finds := map[string]func(r lock.Request){
		"nothing":           func(lock.Request) {},
		"a user's string":   func(r lock.Request) { set(scheme.Lock(r.Resource)) },
		"a user's hash":     func(r lock.Request) { require.NoError(t, rdb.HSet(ctx, scheme.Lock(r.Resource), "f", "v").Err()) },
		"a lock of another": taken,
		"a broken counter":  func(r lock.Request) { set(scheme.Counter(r.Resource)) },
		"a full counter": func(r lock.Request) {
			require.NoError(t, rdb.Set(ctx, scheme.Counter(r.Resource), "9223372036854775807", 0).Err())
		},
		"a negative counter": func(r lock.Request) { require.NoError(t, rdb.Set(ctx, scheme.Counter(r.Resource), "-7", 0).Err()) },
		"a great counter": func(r lock.Request) {
			require.NoError(t, rdb.Set(ctx, scheme.Counter(r.Resource), "99999999999999999", 0).Err())
		},
		"its own lock": func(r lock.Request) {
			acquired(t, b, r)
		},
		"its release": func(r lock.Request) {
			acquired(t, b, r)
			require.NoError(t, b.Release(ctx, r))
		},
		"the release of another": func(r lock.Request) {
			r.Nonce = "another, not " + r.Nonce
			acquired(t, b, r)
			require.NoError(t, b.Release(ctx, r))
		},
		"a lock that others were refused, and that is free": func(r lock.Request) {
			r.Nonce = "another, not " + r.Nonce
			acquired(t, b, r)
			third := r
			third.Nonce = "third, " + r.Nonce
			_, err := b.Acquire(ctx, third)
			require.ErrorIs(t, err, lock.ErrHeld)
			require.NoError(t, b.Release(ctx, r))
		},
		left: func(r lock.Request) { require.ErrorIs(t, b.Leave(ctx, r, r.Nonce), lock.ErrLost) },
		"its lock shared": func(r lock.Request) {
			acquired(t, b, r)
			require.NoError(t, b.Join(ctx, r, "member"))
		},
		"its lock waited for": func(r lock.Request) {
			acquired(t, b, r)
			other := r
			other.Nonce = "another, not " + r.Nonce
			_, err := b.Acquire(ctx, other)
			require.ErrorIs(t, err, lock.ErrHeld)
		},
	}
	type outcome struct{ acquired, released, value, counter string }
	says := func(r lock.Request, err error) string {
		if held, ok := errors.AsType[*lock.HeldError](err); ok {
			return "held by " + held.Holder
		}
		return strings.NewReplacer(scheme.Lock(r.Resource), "LOCK", r.Resource, "RESOURCE", scheme.Counter(r.Resource), "COUNTER", r.Nonce, "NONCE").Replace(fmt.Sprint(err))
	}
	prepare := func(round, find string) lock.Request {
		// A resource with a counter of its own, so that a broken one hurts nobody else.
		r := request()
		for i := 0; ; i++ {
			require.Less(t, i, 10_000, "there are no more counters")
			r.Resource = fmt.Sprint(round, " ", find, " ", i)
			if rdb.SetNX(ctx, "used:"+scheme.Counter(r.Resource), "", 0).Val() {
				break
			}
		}
		finds[find](r)
		return r
	}
	type call struct {
		find string
		lock.Request
		outcome
	}
	acquire := func(c *call) {
		_, err := b.Acquire(ctx, c.Request)
		c.acquired = says(c.Request, err)
	}
	release := func(c *call) {
		c.released = says(c.Request, b.Release(ctx, c.Request))
		// A release forgets who was refused the lock long ago.
		value, _, _ := strings.Cut(rdb.Get(ctx, scheme.Lock(c.Resource)).Val(), "\n?")
		c.value = strings.TrimSuffix(strings.ReplaceAll(value, c.Nonce, "NONCE"), "\n")
		c.counter = rdb.Get(ctx, scheme.Counter(c.Resource)).Val()
	}
	for name, group := range map[string]struct {
		acquires bool
		without  string
	}{
		"acquire and release": {true, left}, "beside one that has left": {true, ""}, "release": {false, left},
	} {
		g.several["grants.lua"].Store(0)
		g.several["releases.lua"].Store(0)
		alone := make(map[string]outcome)
		var calls []*call
		for round := range 4 {
			for find := range finds {
				c := &call{find: find, Request: prepare(fmt.Sprint(name, round), find)}
				switch {
				case round == 0 && group.acquires:
					acquire(c)
					fallthrough
				case round == 0:
					release(c)
					alone[find] = c.outcome
				case find != group.without:
					calls = append(calls, c)
				}
			}
		}
		if group.acquires {
			g.together(len(calls), func(i int) { acquire(calls[i]) })
			require.Positive(t, g.several["grants.lua"].Load())
		}
		g.together(len(calls), func(i int) { release(calls[i]) })
		require.Positive(t, g.several["releases.lua"].Load())
		for _, c := range calls {
			require.Equal(t, alone[c.find], c.outcome, "%s, finds %s", name, c.find)
		}
		if group.acquires {
			require.Contains(t, alone["a user's hash"].acquired, "WRONGTYPE")
			require.Contains(t, alone["a broken counter"].acquired, "not an integer")
		}
	}
}

// Several of a batch ask for the same lock, and find it free: never had, or released.
func TestABatchGrantsALockOnce(t *testing.T) {
	t.Parallel()
	b, rdb, _ := open(t)
	g := newGate(t, rdb, b)
	for round := range 4 {
		name := func(i int) string { return fmt.Sprint("round ", round, " ", i%10) }
		last := make(map[string]guard.Token)
		for i := range 10 {
			r := request()
			if r.Resource = name(i); round > 0 {
				last[r.Resource] = acquired(t, b, r)
				require.NoError(t, b.Release(t.Context(), r))
			}
		}
		tokens := make([]guard.Token, many)
		g.together(many, func(i int) {
			r := request()
			r.Resource = name(i)
			tokens[i], _ = b.Acquire(t.Context(), r)
		})
		holders := make(map[string]int)
		for i, token := range tokens {
			if token > 0 {
				holders[name(i)]++
				require.Greater(t, token, last[name(i)])
			}
		}
		require.Len(t, holders, 10)
		for resource, n := range holders {
			require.Equal(t, 1, n, resource)
		}
	}
	require.Positive(t, g.several["grants.lua"].Load())
}

func acquired(t *testing.T, b *redislock.Backend, r lock.Request) guard.Token {
	t.Helper()
	token, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	return token
}
