package etcdlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/outagetest"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
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

// outage has the leader fail while a lock is held and waited for.
func outage(t *testing.T, begin, end func(*localserver.Etcd) error) {
	t.Helper()
	cluster := servertest.NewEtcd(t, 3)
	client := connect(t, cluster.URLs()...)
	b, victim := open(t, client), leader(t, client, cluster)
	outagetest.OfMember(t, outagetest.Failure{
		Begin: func() error { return begin(victim) },
		End:   func() error { return end(victim) },
	}, b, b, func() lock.Backend { return open(t, connect(t, victim.URL())) })
}

func TestTheLeaderHangsWhileALockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	outage(t, func(m *localserver.Etcd) error { return m.Pause() }, func(m *localserver.Etcd) error { return m.Resume() })
}

func TestTheLeaderIsKilledAndRestored(t *testing.T) {
	t.Parallel()
	outage(t, func(m *localserver.Etcd) error { return m.Kill() }, func(m *localserver.Etcd) error { return m.Restart(t.Context()) })
}

func TestLossOnTimeWhileAMajorityHangs(t *testing.T) {
	t.Parallel()
	cluster := servertest.NewEtcd(t, 3)
	one, other := cluster.Members[0], cluster.Members[1]
	outagetest.OfMajority(t, outagetest.Failure{
		Begin: func() error { return errors.Join(one.Pause(), other.Pause()) },
		End:   func() error { return errors.Join(one.Resume(), other.Resume()) },
	}, open(t, connect(t, cluster.URLs()...)))
}

func TestACutLinkThatHealsInTimeLosesNothing(t *testing.T) {
	t.Parallel()
	l := newLink(t, servertest.Etcd(t)[0])
	outagetest.OfLink(t, outagetest.Failure{
		Begin: func() error { l.cut(); return nil },
		End:   func() error { l.heal(); return nil },
	}, open(t, connect(t, l.url())))
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
