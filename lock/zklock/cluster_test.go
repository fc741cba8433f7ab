package zklock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/outagetest"
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

// outage has a member fail while a lock is held and waited for by clients that are
// connected to it.
func outage(t *testing.T, leads bool, begin, end func(*localserver.ZooKeeper) error) {
	t.Helper()
	e := ensemble(t)
	victim := member(t, e, leads)
	outagetest.OfMember(t, outagetest.Failure{
		Begin: func() error { return begin(victim) },
		End:   func() error { return end(victim) },
	}, open(t, via(e, victim)), open(t, via(e, victim)), func() lock.Backend { return open(t, []string{victim.Addr()}) })
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

func TestLossOnTimeWhileAMajorityHangs(t *testing.T) {
	t.Parallel()
	e := ensemble(t)
	one, other := e.Members[0], e.Members[1]
	outagetest.OfMajority(t, outagetest.Failure{
		Begin: func() error { return errors.Join(one.Pause(), other.Pause()) },
		End:   func() error { return errors.Join(one.Resume(), other.Resume()) },
	}, open(t, e.Addrs(), zklock.WithSessionTimeout(4*time.Second)))
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
	// The member that is left closes its port for moments, while it looks for a leader.
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := b.Acquire(ctx, request())
		return errors.Is(err, context.DeadlineExceeded) && time.Since(begun) < 8*time.Second &&
			strings.Contains(err.Error(), e.Members[2].Addr()+" granted no session")
	}, within, time.Millisecond)
	for _, m := range e.Members[:2] {
		require.NoError(t, m.Restart(t.Context()))
	}
	require.Eventually(t, func() bool { _, err := b.Acquire(t.Context(), request()); return err == nil }, within, 100*time.Millisecond)
}
