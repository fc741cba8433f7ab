package zklock_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/zklock"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, servers) })
}

// Peers' fault: the retry of a release frees the lock of the successor.
func TestS27_ARepeatedReleaseFreesNoSuccessor(t *testing.T) {
	t.Parallel()
	b, r := open(t, servertest.ZooKeeper(t)), request()
	acquire(t, b, r)
	require.NoError(t, b.Release(t.Context(), r))
	successor := rival(r)
	acquire(t, b, successor)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	require.NoError(t, b.Renew(t.Context(), successor))
}

// Another process releases by the nonce, as after a Join elsewhere or by hand.
func TestAnotherBackEndReleasesByTheNonce(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, other, r := open(t, servers), open(t, servers), request()
	acquire(t, b, r)
	require.ErrorIs(t, other.Renew(t.Context(), r), lock.ErrLost, "a node lives with the session that created it")
	require.NoError(t, other.Release(t.Context(), r))
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	acquire(t, other, rival(r))
}

// Another session's node would end with that session, whatever we renew.
func TestANodeOfAnotherSessionIsNotTakenOver(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, other, r := open(t, servers), open(t, servers), request()
	before := acquire(t, b, r)
	require.Greater(t, acquire(t, other, r), before)
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	require.NoError(t, other.Renew(t.Context(), r))
}

// The directory was empty for a moment, and ZooKeeper removed it: in the next one the
// numbers begin again, and the node of the other session has the name of ours.
func TestANodeOfAnotherSessionWithOurNameIsNotOurs(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, other, r := open(t, servers), open(t, servers), request()
	acquire(t, b, r)
	c := client(t, servers)
	name := nodes(t, c, b, r.Resource)[0]
	require.NoError(t, c.Delete(b.Dir(r.Resource)+"/"+name, -1))
	require.NoError(t, c.Delete(b.Dir(r.Resource), -1))
	acquire(t, other, r)
	require.Equal(t, name, nodes(t, c, b, r.Resource)[0])
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	require.NoError(t, other.Renew(t.Context(), r))
}

// Somebody deleted the node by hand: the session lives, the lock does not.
func TestANodeThatWasDeletedIsALostLock(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, r := open(t, servers), request()
	before := acquire(t, b, r)
	c := client(t, servers)
	require.NoError(t, c.Delete(b.Dir(r.Resource)+"/"+nodes(t, c, b, r.Resource)[0], -1))
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	require.Greater(t, acquire(t, b, r), before)
	require.NoError(t, c.Delete(b.Dir(r.Resource)+"/"+nodes(t, c, b, r.Resource)[0], -1))
	acquire(t, b, rival(r))
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
}

// ZooKeeper removes a directory whose last lock is gone, so that the number of nodes
// is bounded by that of locks.
func TestNothingIsLeftOfALockThatNobodyHolds(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, r := open(t, servers), request()
	acquire(t, b, r)
	for range 3 {
		_, err := b.Acquire(t.Context(), rival(r))
		require.ErrorIs(t, err, lock.ErrHeld)
	}
	c := client(t, servers)
	require.Len(t, nodes(t, c, b, r.Resource), 1)
	require.NoError(t, b.Release(t.Context(), r))
	require.Eventually(t, func() bool {
		exists, _, err := c.Exists(b.Dir(r.Resource))
		return err == nil && !exists
	}, within, 50*time.Millisecond)
	acquire(t, b, rival(r))
}

// A lock is acquired while ZooKeeper removes the empty directory under it.
func TestADirectoryMayVanishBeforeANodeIsCreated(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, r, c := open(t, servers), request(), client(t, servers)
	var last guard.Token
	for range 20 {
		token := acquire(t, b, r)
		require.Greater(t, token, last)
		last = token
		require.NoError(t, b.Release(t.Context(), r))
		if err := c.Delete(b.Dir(r.Resource), -1); err != nil {
			require.ErrorIs(t, err, zk.ErrNoNode) // it was removed already
		}
		r = rival(r)
	}
}

// Close frees every lock at once, and not when the session would have expired.
func TestCloseFreesTheLocks(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, err := zklock.New(servers, zklock.WithSessionTimeout(80*time.Second))
	require.NoError(t, err)
	r := request()
	acquire(t, b, r)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	acquire(t, open(t, servers), rival(r))
	_, err = b.Acquire(t.Context(), rival(r))
	require.ErrorContains(t, err, "the back end is closed")
	require.ErrorContains(t, b.Renew(t.Context(), r), "the back end is closed")
	require.ErrorContains(t, b.Release(t.Context(), r), "the back end is closed")
	_, err = b.Inspect(t.Context(), r.Resource)
	require.ErrorContains(t, err, "the back end is closed")
	wake, stop := b.Watch(r)
	defer stop()
	require.Empty(t, wake)
}

// Nodes are below the prefix, whose missing parts are made.
func TestPrefixesAreSeparate(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	base := "/chroot-" + rand.Text()
	one, other, r := open(t, servers, zklock.WithPrefix(base+"/a/b")), open(t, servers, zklock.WithPrefix(base+"/c")), request()
	acquire(t, one, r)
	acquire(t, other, rival(r))
	c := client(t, servers)
	names, _, err := c.Children(base + "/a/b/lock")
	require.NoError(t, err)
	require.Equal(t, []string{r.Resource}, names)
}

// The contenders of two processes are served in the order in which they came.
func TestAFairLockIsServedInOrderAcrossBackEnds(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	name := request().Resource
	one, other := locker(t, open(t, servers), lock.WithFair()), locker(t, open(t, servers), lock.WithFair())
	s, err := one.Acquire(t.Context(), name)
	require.NoError(t, err)
	b := open(t, servers)
	c := client(t, servers)
	order := make(chan int, 6)
	var contenders sync.WaitGroup
	for i := range 6 {
		l := []*lock.Locker{one, other}[i%2]
		contenders.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			s, err := l.Acquire(ctx, name)
			if err != nil {
				t.Errorf("contender %d: %v", i, err)
				order <- -1
				return
			}
			order <- i
			if err := s.Release(ctx); err != nil {
				t.Errorf("contender %d: %v", i, err)
			}
		})
		require.Eventually(t, func() bool { return len(nodes(t, c, b, name)) == i+2 }, within, time.Millisecond)
	}
	require.NoError(t, s.Release(t.Context()))
	for i := range 6 {
		require.Equal(t, i, <-order)
	}
	contenders.Wait() // and release, before the back ends are closed
}
