package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
)

// passes returns the checks of a [lock.Passer].
func passes() []check {
	return []check{
		{"Pass", pass},
		{"S27_ALostLockIsNotPassed", passLost},
		{"PassLeavesItToOthersWhoWait", passOthers},
		{"PassByAMember", passMember},
	}
}

// owner is what a release needs of a request.
func owner(r lock.Request) lock.Request {
	return lock.Request{Resource: r.Resource, Nonce: r.Nonce}
}

func pass(t testing.TB, b lock.Backend) {
	p := b.(lock.Passer)
	r := request(name(), brief)
	next := request(r.Resource, long)
	last := take(t, b, r)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Pass(dead, owner(r), next)
	require.Error(t, err, "a dead context")
	require.NotErrorIs(t, err, lock.ErrLost)
	require.NoError(t, b.Renew(t.Context(), r), "a dead context passes the lock")

	token, err := p.Pass(t.Context(), owner(r), next)
	require.NoError(t, err)
	require.Greater(t, token, last)
	again, err := p.Pass(t.Context(), owner(r), next)
	require.NoError(t, err, "a pass whose reply was lost is repeated")
	require.Equal(t, token, again)
	e := held(t, b, r.Resource)
	require.Equal(t, next.Holder, e.Holder)
	require.Greater(t, e.Remaining, brief)
	require.NoError(t, b.Renew(t.Context(), next), "the lock was passed to it")
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	require.NoError(t, b.Release(t.Context(), next))

	// And so on, from one to the next.
	r = request(r.Resource, long)
	last = take(t, b, r)
	require.Greater(t, last, token)
	for range 5 {
		next = request(r.Resource, long)
		token, err = p.Pass(t.Context(), r, next)
		require.NoError(t, err)
		require.Greater(t, token, last)
		r, last = next, token
	}
	require.NoError(t, b.Release(t.Context(), r))
	take(t, b, request(r.Resource, long))
}

func passLost(t testing.TB, b lock.Backend) {
	p := b.(lock.Passer)
	r, next := request(name(), long), request(name(), long)
	next.Resource = r.Resource
	_, err := p.Pass(t.Context(), r, next)
	require.ErrorIs(t, err, lock.ErrLost, "nobody holds it")
	successor := request(r.Resource, long)
	take(t, b, successor)
	_, err = p.Pass(t.Context(), r, next)
	require.ErrorIs(t, err, lock.ErrLost, "another holds it")
	require.NoError(t, b.Renew(t.Context(), successor))
	require.NoError(t, b.Release(t.Context(), successor))
	take(t, b, request(r.Resource, long))
}

func passOthers(t testing.TB, b lock.Backend) {
	p := b.(lock.Passer)
	r, next := request(name(), long), request(name(), long)
	next.Resource = r.Resource
	take(t, b, r)
	woken := func(string) {}
	if w, ok := b.(lock.Waiter); ok {
		wake, stop := w.Watch(lock.Request{Resource: r.Resource})
		defer stop()
		woken = func(why string) {
			t.Helper()
			select {
			case <-wake:
			case <-time.After(10 * time.Second):
				require.FailNow(t, why)
			}
		}
		woken("the watch never comes into effect")
	}
	held(t, b, r.Resource) // another is refused
	token, err := p.Pass(t.Context(), r, next)
	require.NoError(t, err)
	require.Zero(t, token, "another waits for it")
	woken("a release instead of a pass wakes nobody")
	r = request(r.Resource, long)
	last := take(t, b, r)

	// Who asked in vain for that lock has nothing to do with this one, and next is no other.
	_, err = b.Acquire(t.Context(), next)
	require.ErrorIs(t, err, lock.ErrHeld)
	token, err = p.Pass(t.Context(), r, next)
	require.NoError(t, err)
	require.Greater(t, token, last, "nobody else waits for it")
}

func passMember(t testing.TB, b lock.Backend) {
	j, ok := b.(lock.Joiner)
	if !ok {
		return
	}
	p := b.(lock.Passer)
	r, next := request(name(), long), request(name(), long)
	next.Resource = r.Resource
	take(t, b, r)
	require.NoError(t, j.Join(t.Context(), r, "second"))
	token, err := p.Pass(t.Context(), r, next)
	require.NoError(t, err)
	require.Zero(t, token, "the second member has it")
	require.NoError(t, b.Renew(t.Context(), r))
	held(t, b, r.Resource)
	require.NoError(t, j.Leave(t.Context(), r, "second"), "the first one has left")
	take(t, b, next)
}
