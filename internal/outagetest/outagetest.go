// Package outagetest has what a locker must live through while members of its cluster do
// not answer, for the tests of back ends that run on more than one server.
package outagetest

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

const (
	resource = "inventory:sku-42"
	within   = 90 * time.Second // for whatever must happen at last
)

// A Failure is what happens to some members, and its end.
type Failure struct{ Begin, End func() error }

// OfMember has a lock held and waited for, through back ends that talk to the member that
// fails. The hold is renewed all the same, and then handed over. Direct returns a back end
// on that member alone, which serves the same locks in the end.
func OfMember(t *testing.T, member Failure, holder, waiter lock.Backend, direct func() lock.Backend) {
	t.Helper()
	// Longer than a busy machine needs to elect another leader.
	const ttl = 30 * time.Second
	l := locker(t, holder, lock.WithTTL(ttl), lock.WithRenewEvery(time.Second))
	rival := locker(t, waiter, lock.WithTTL(ttl))
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	_, err = rival.TryAcquire(t.Context(), resource)
	require.ErrorIs(t, err, lock.ErrHeld)
	got := make(chan *lock.Lease, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		next, err := rival.Acquire(ctx, resource)
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		got <- next
	}()
	require.NoError(t, member.Begin())
	for range 2 { // the first renewal may have been under way
		renewed(t, s)
	}
	require.NoError(t, s.Release(t.Context()))
	next := <-got
	require.NotNil(t, next)
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	require.NoError(t, member.End())
	require.NoError(t, next.Release(t.Context()))
	b, r := direct(), lock.Request{Resource: resource, Nonce: "direct", TTL: time.Second}
	require.Eventually(t, func() bool {
		token, err := b.Acquire(t.Context(), r)
		return err == nil && token > next.Fence().Token && b.Release(t.Context(), r) == nil
	}, within, 100*time.Millisecond)
}

// OfMajority holds a lock while most members fail: the loss is on time, whoever asks is
// answered on time, and when they are back the locks are free again and the late holder is
// fenced.
func OfMajority(t *testing.T, majority Failure, b lock.Backend) {
	t.Helper()
	store := guard.NewMemory()
	l := locker(t, b, lock.WithTTL(2*time.Second), lock.WithGuards(store))
	s := lease(t, l)
	require.NoError(t, majority.Begin())
	select {
	case <-s.Lost():
		require.WithinDuration(t, s.Deadline(), time.Now(), 2*time.Second)
	case <-time.After(within):
		require.FailNow(t, "no loss signalled while a majority does not answer")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	r := lock.Request{Resource: "inventory:sku-43", Nonce: "late", TTL: time.Second}
	_, err := b.Acquire(ctx, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, lock.ErrHeld)
	renewal, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	if err := b.Renew(renewal, r); !errors.Is(err, lock.ErrLost) { // which some know by themselves
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, majority.End())
	next := lease(t, l)
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	require.NoError(t, next.Release(t.Context()))
	late := guard.NewContext(t.Context(), s.Fence())
	require.ErrorIs(t, store.Write(late, resource, func() error { return nil }), guard.ErrStale)
}

// OfLink breaks the locker's only way to the cluster, and mends it before the lease ends:
// nothing is lost.
func OfLink(t *testing.T, link Failure, b lock.Backend) {
	t.Helper()
	l := locker(t, b, lock.WithTTL(time.Minute), lock.WithRenewEvery(500*time.Millisecond))
	s, err := l.Acquire(t.Context(), resource+":"+rand.Text()) // the server may be shared
	require.NoError(t, err)
	renewed(t, s)
	require.NoError(t, link.Begin())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = b.Acquire(ctx, lock.Request{Resource: resource, Nonce: "cut off", TTL: time.Second})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, link.End())
	renewed(t, s)
	require.NoError(t, s.Release(t.Context()))
}

// renewed waits for the next renewal of a lease.
func renewed(t *testing.T, s *lock.Lease) {
	t.Helper()
	before := s.Deadline()
	require.Eventually(t, func() bool { return s.Deadline().After(before) || s.Context().Err() != nil }, within, 10*time.Millisecond, "not renewed")
	require.NoError(t, context.Cause(s.Context()))
}

func locker(t *testing.T, b lock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// lease acquires the lock for a TTL that a busy machine may need to connect.
func lease(t *testing.T, l *lock.Locker) (s *lock.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = l.Acquire(ctx, resource)
		return err == nil
	}, within, 10*time.Millisecond)
	return s
}
