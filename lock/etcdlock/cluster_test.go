package etcdlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/etcdlock"
)

const (
	resource = "inventory:sku-42"
	within   = 90 * time.Second // for whatever must happen at last
)

func locker(t testing.TB, b lock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// leader returns the member that leads, as the others see it.
func leader(t testing.TB, client *clientv3.Client, c *localserver.EtcdCluster) *localserver.Etcd {
	t.Helper()
	for _, m := range c.Members {
		s, err := client.Status(t.Context(), m.URL())
		require.NoError(t, err)
		if s.Leader == s.Header.MemberId {
			return m
		}
	}
	require.FailNow(t, "no member leads")
	return nil
}

// outage holds a lock, has another locker wait for it, breaks the leader, and sees
// the hold renewed and then handed over.
func outage(t *testing.T, breakIt, mend func(*localserver.Etcd) error) {
	cluster := servertest.NewEtcd(t, 3)
	client := connect(t, cluster.URLs()...)
	b := &counter{Backend: open(t, client), renewed: make(chan struct{}, 1)}
	holder, rival := locker(t, b, lock.WithTTL(15*time.Second)), locker(t, b)
	s, err := holder.Acquire(t.Context(), resource)
	require.NoError(t, err)
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
	victim := leader(t, client, cluster)
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
		direct := open(t, connect(t, victim.URL()))
		r := lock.Request{Resource: resource, Nonce: "direct", TTL: time.Minute}
		token, err := direct.Acquire(t.Context(), r)
		return err == nil && token > next.Fence().Token && direct.Release(t.Context(), r) == nil
	}, within, 100*time.Millisecond)
}

// A counter tells of renewals that succeeded.
type counter struct {
	*etcdlock.Backend
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

func TestTheLeaderHangsWhileALockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	outage(t, func(m *localserver.Etcd) error { return m.Pause() }, func(m *localserver.Etcd) error { return m.Resume() })
}

func TestTheLeaderIsKilledAndRestored(t *testing.T) {
	t.Parallel()
	outage(t, func(m *localserver.Etcd) error { return m.Kill() }, func(m *localserver.Etcd) error { return m.Restart(t.Context()) })
}

// A majority hangs: the loss is on time, whoever asks is answered on time, and when
// it is back the locks are free again and the late holder is fenced.
func TestLossOnTimeWhileAMajorityHangs(t *testing.T) {
	t.Parallel()
	cluster := servertest.NewEtcd(t, 3)
	b := open(t, connect(t, cluster.URLs()...))
	store := guard.NewMemory()
	l := locker(t, b, lock.WithTTL(2*time.Second), lock.WithGuards(store))
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	for _, m := range cluster.Members[:2] {
		require.NoError(t, m.Pause())
	}
	select {
	case <-s.Lost():
		require.WithinDuration(t, s.Deadline(), time.Now(), 2*time.Second)
	case <-time.After(within):
		require.FailNow(t, "no loss signalled while a majority hangs")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = b.Acquire(ctx, request())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, lock.ErrHeld)
	renewal, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	require.ErrorIs(t, b.Renew(renewal, request()), context.DeadlineExceeded)
	for _, m := range cluster.Members[:2] {
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

// The locker's only way to etcd is cut, and comes back before the end of the lease.
func TestACutLinkThatHealsInTimeLosesNothing(t *testing.T) {
	t.Parallel()
	urls := servertest.Etcd(t)
	link := newLink(t, urls[0])
	b := &counter{Backend: open(t, connect(t, link.url())), renewed: make(chan struct{}, 1)}
	l := locker(t, b, lock.WithTTL(time.Minute), lock.WithRenewEvery(500*time.Millisecond))
	s, err := l.Acquire(t.Context(), "inventory:cut")
	require.NoError(t, err)
	<-b.renewed
	link.cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = b.Acquire(ctx, request())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	link.heal()
	before := s.Deadline()
	require.Eventually(t, func() bool { return s.Deadline().After(before) }, within, 10*time.Millisecond)
	require.NoError(t, s.Release(t.Context()))
}

// Without a member to talk to, every call is an error soon.
func TestNoEndpointIsAnErrorInTime(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, "http://127.0.0.1:1"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, request())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, lock.ErrHeld)
}
