package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

func ensemble(t testing.TB) *localserver.ZooKeeperEnsemble {
	t.Helper()
	return servertest.NewZooKeeper(t, 3, localserver.ZooKeeperOptions{})
}

// member returns one that leads, or one that does not.
func member(t testing.TB, e *localserver.ZooKeeperEnsemble, leads bool) *localserver.ZooKeeper {
	t.Helper()
	for _, m := range e.Members {
		is, err := m.Leads(t.Context())
		require.NoError(t, err)
		if is == leads {
			return m
		}
	}
	require.FailNow(t, "no such member")
	return nil
}

// A counter tells of renewals that succeeded.
type counter struct {
	*zklock.Backend
	renewed chan struct{}
}

func (c *counter) Renew(ctx context.Context, r lock.Request) error {
	err := c.Backend.Renew(ctx, r)
	if err == nil {
		select {
		case c.renewed <- struct{}{}:
		default:
		}
	}
	return err
}

// outage holds a lock, has another locker wait for it, breaks a member, and sees the
// hold renewed and then handed over. Holder and waiter are connected to that member
// first.
func outage(t *testing.T, leads bool, breakIt, mend func(*localserver.ZooKeeper) error) {
	e := ensemble(t)
	victim := member(t, e, leads)
	b := &counter{Backend: open(t, via(e, victim)), renewed: make(chan struct{}, 1)}
	holder := locker(t, b, lock.WithTTL(15*time.Second), lock.WithRenewEvery(time.Second))
	rival := locker(t, open(t, via(e, victim)), lock.WithTTL(15*time.Second))
	s, err := holder.Acquire(t.Context(), resource)
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
	require.NoError(t, breakIt(victim))
	for range 2 { // the first may have been under way
		before := s.Deadline()
		select {
		case <-b.renewed:
		case <-s.Lost():
			require.FailNow(t, "lost", "%v", context.Cause(s.Context()))
		case <-time.After(within):
			require.FailNow(t, "not renewed")
		}
		require.Eventually(t, func() bool { return s.Deadline().After(before) }, within, 10*time.Millisecond)
	}
	require.NoError(t, s.Release(t.Context()))
	next := <-got
	require.NotNil(t, next)
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	require.NoError(t, mend(victim))
	require.NoError(t, next.Release(t.Context()))
	require.Eventually(t, func() bool { // the member that is back serves the same locks
		direct, err := zklock.New([]string{victim.Addr()})
		require.NoError(t, err)
		defer func() { require.NoError(t, direct.Close()) }()
		r := lock.Request{Resource: resource, Nonce: "direct", TTL: time.Second}
		token, err := direct.Acquire(t.Context(), r)
		return err == nil && token > next.Fence().Token && direct.Release(t.Context(), r) == nil
	}, within, 100*time.Millisecond)
}

// via returns the addresses of the ensemble, so that a client begins with one member:
// the others are behind it in name only, until it fails.
func via(e *localserver.ZooKeeperEnsemble, first *localserver.ZooKeeper) []string {
	addrs := []string{first.Addr()}
	for _, m := range e.Members {
		if m != first {
			addrs = append(addrs, m.Addr())
		}
	}
	return addrs
}

func TestTheLeaderHangsWhileALockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	outage(t, true, (*localserver.ZooKeeper).Pause, (*localserver.ZooKeeper).Resume)
}

func TestAFollowerHangsWhileALockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	outage(t, false, (*localserver.ZooKeeper).Pause, (*localserver.ZooKeeper).Resume)
}

func TestTheLeaderIsKilledAndRestored(t *testing.T) {
	t.Parallel()
	outage(t, true, (*localserver.ZooKeeper).Kill, func(m *localserver.ZooKeeper) error { return m.Restart(t.Context()) })
}

// A majority hangs: the loss is on time, whoever asks is answered on time, and when
// it is back the locks are free again and the late holder is fenced.
func TestLossOnTimeWhileAMajorityHangs(t *testing.T) {
	t.Parallel()
	e := ensemble(t)
	b := open(t, e.Addrs(), zklock.WithSessionTimeout(4*time.Second))
	store := guard.NewMemory()
	l := locker(t, b, lock.WithTTL(2*time.Second), lock.WithGuards(store))
	s := lease(t, l, resource)
	for _, m := range e.Members[:2] {
		require.NoError(t, m.Pause())
	}
	select {
	case <-s.Lost():
		require.WithinDuration(t, s.Deadline(), time.Now(), 2*time.Second)
	case <-time.After(within):
		require.FailNow(t, "no loss signalled while a majority hangs")
	}
	r := request()
	r.TTL = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, lock.ErrHeld)
	for _, m := range e.Members[:2] {
		require.NoError(t, m.Resume())
	}
	ctx, cancel = context.WithTimeout(t.Context(), within)
	defer cancel()
	var next *lock.Lease
	require.Eventually(t, func() bool { next, err = l.Acquire(ctx, resource); return err == nil }, within, 100*time.Millisecond)
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	require.NoError(t, next.Release(ctx))
	late := guard.NewContext(ctx, s.Fence())
	require.ErrorIs(t, store.Write(late, resource, func() error { return nil }), guard.ErrStale)
}

// A contender's node comes first, as a server says that is cut off from the others: by
// now they may have ended its session and given the lock to another.
func TestAServerThatIsCutOffGrantsNothing(t *testing.T) {
	t.Parallel()
	e := ensemble(t)
	f := member(t, e, false)
	holder, contender := open(t, []string{member(t, e, true).Addr()}), open(t, []string{f.Addr()})
	r := request()
	acquire(t, holder, r)
	second := rival(r)
	_, err := contender.AcquireInTurn(t.Context(), second, time.Minute)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, holder.Release(t.Context(), r))
	c := client(t, []string{f.Addr()})
	require.Len(t, nodes(t, c, contender, r.Resource), 1) // the server knows of the release
	for _, m := range e.Members {
		if m != f {
			require.NoError(t, m.Pause())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = contender.AcquireInTurn(ctx, second, time.Minute)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, m := range e.Members {
		if m != f {
			require.NoError(t, m.Resume())
		}
	}
	require.Eventually(t, func() bool {
		_, err := contender.AcquireInTurn(t.Context(), second, time.Minute)
		return err == nil
	}, within, 100*time.Millisecond)
}

// Two of three are gone: every call is an error that says so, within its time.
func TestNoQuorumIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	e := ensemble(t)
	for _, m := range e.Members[:2] {
		require.NoError(t, m.Kill())
	}
	b := open(t, []string{e.Members[2].Addr()})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	begun := time.Now()
	_, err := b.Acquire(ctx, request())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, e.Members[2].Addr()+" granted no session")
	require.Less(t, time.Since(begun), 8*time.Second)
	for _, m := range e.Members[:2] {
		require.NoError(t, m.Restart(t.Context()))
	}
	require.Eventually(t, func() bool { _, err := b.Acquire(t.Context(), request()); return err == nil }, within, 100*time.Millisecond)
}
