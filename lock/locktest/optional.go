package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
)

// optional returns the checks of the optional interfaces that b implements.
func optional(b lock.Backend) []check {
	var checks []check
	if _, ok := b.(lock.Joiner); ok {
		checks = append(checks, check{"Join", join})
	}
	if _, ok := b.(lock.Inspector); ok {
		checks = append(checks, check{"Inspect", inspect})
	}
	if _, ok := b.(lock.BatchRenewer); ok {
		checks = append(checks, check{"RenewAll", renewAll})
	}
	if _, ok := b.(lock.Waiter); ok {
		checks = append(checks, check{"Watch", watch})
	}
	if _, ok := b.(lock.FairBackend); ok {
		checks = append(checks, check{"Fair", fair})
	}
	if _, ok := b.(lock.Passer); ok {
		checks = append(checks, passes()...)
	}
	return checks
}

func join(t testing.TB, b lock.Backend) {
	j := b.(lock.Joiner)
	r := request(name(), long)
	require.ErrorIs(t, j.Join(t.Context(), r, "second"), lock.ErrLost, "nobody holds it")
	take(t, b, r)
	require.NoError(t, j.Join(t.Context(), r, "second"))
	require.NoError(t, j.Join(t.Context(), r, "second"), "a repeated call")
	require.NoError(t, b.Release(t.Context(), r))
	held(t, b, r.Resource)
	require.NoError(t, b.Renew(t.Context(), r), "the second member keeps it")
	require.NoError(t, j.Leave(t.Context(), r, "second"))
	successor := request(r.Resource, long)
	take(t, b, successor)
	require.ErrorIs(t, j.Join(t.Context(), r, "third"), lock.ErrLost)
	require.ErrorIs(t, j.Leave(t.Context(), r, "third"), lock.ErrLost)
	held(t, b, r.Resource)

	// A member with a shorter TTL takes nothing away from the others.
	shorter := successor
	shorter.TTL = brief
	require.NoError(t, j.Join(t.Context(), shorter, "shorter"))
	require.Greater(t, held(t, b, r.Resource).Remaining, brief)
	require.NoError(t, b.Renew(t.Context(), shorter))
	require.Greater(t, held(t, b, r.Resource).Remaining, brief)
}

func inspect(t testing.TB, b lock.Backend) {
	i := b.(lock.Inspector)
	r := request(name(), long)
	h, err := i.Inspect(t.Context(), r.Resource)
	require.NoError(t, err)
	require.Zero(t, h.Token, "a free lock")
	token := take(t, b, r)
	h, err = i.Inspect(t.Context(), r.Resource)
	require.NoError(t, err)
	require.Equal(t, r.Resource, h.Resource)
	require.Equal(t, token, h.Token)
	require.Equal(t, r.Holder, h.Holder)
	require.Equal(t, 1, h.Members)
	require.Greater(t, h.Remaining, long/2)
}

func renewAll(t testing.TB, b lock.Backend) {
	batch := b.(lock.BatchRenewer)
	requests := make([]lock.Request, 40)
	for i := range requests {
		requests[i] = request(name(), long)
		if i%4 != 0 {
			take(t, b, requests[i])
		}
	}
	errs := batch.RenewAll(t.Context(), requests)
	require.Len(t, errs, len(requests))
	for i, err := range errs {
		if i%4 == 0 {
			require.ErrorIs(t, err, lock.ErrLost, "request %d was never granted", i)
		} else {
			require.NoError(t, err, "request %d", i)
		}
	}
}

func watch(t testing.TB, b lock.Backend) {
	w := b.(lock.Waiter)
	r := request(name(), long)
	take(t, b, r)
	wake, stop := w.Watch(lock.Request{Resource: r.Resource})
	defer stop()
	woken := func(why string) {
		t.Helper()
		select {
		case <-wake:
		case <-time.After(10 * time.Second):
			require.FailNow(t, why)
		}
	}
	woken("the watch never comes into effect")
	_, err := b.Acquire(t.Context(), request(r.Resource, long))
	require.ErrorIs(t, err, lock.ErrHeld)
	for range 3 {
		require.NoError(t, b.Release(t.Context(), r))
		woken("a release wakes nobody")
		r = request(r.Resource, long)
		take(t, b, r)
	}
}

func fair(t testing.TB, b lock.Backend) {
	f := b.(lock.FairBackend)
	resource := name()
	holder, second, third, dead := request(resource, long), request(resource, long), request(resource, long), request(resource, long)
	turn := func(r lock.Request, patience time.Duration) error {
		_, err := f.AcquireInTurn(t.Context(), r, patience)
		return err
	}
	require.NoError(t, turn(holder, long))
	require.ErrorIs(t, turn(dead, short), lock.ErrHeld)
	require.ErrorIs(t, turn(second, long), lock.ErrHeld)
	require.ErrorIs(t, turn(third, long), lock.ErrHeld)
	require.NoError(t, b.Release(t.Context(), holder))
	require.ErrorIs(t, turn(third, long), lock.ErrHeld, "it is not third's turn")
	eventually(t, "the dead contender is not skipped", func() error { return turn(second, long) })
	require.NoError(t, turn(second, long), "repeated by the one who has it")
	require.NoError(t, b.Release(t.Context(), second))
	require.NoError(t, turn(third, long))
	require.NoError(t, b.Release(t.Context(), third))

	holder, second = request(resource, long), request(resource, long)
	withdrawn := request(resource, long)
	require.NoError(t, turn(holder, long))
	require.ErrorIs(t, turn(withdrawn, long), lock.ErrHeld)
	require.ErrorIs(t, turn(second, long), lock.ErrHeld)
	require.NoError(t, f.Withdraw(t.Context(), withdrawn))
	require.NoError(t, b.Release(t.Context(), holder))
	require.NoError(t, turn(second, long))

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.AcquireInTurn(gone, request(resource, long), long)
	require.Error(t, err, "a dead context")
	require.NotErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, b.Release(t.Context(), second))
	require.NoError(t, turn(request(resource, long), long), "a contender whose context was dead is not in the queue")
}
