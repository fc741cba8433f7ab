package zklock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/zklock"
	"github.com/go-fencing/fencing/sequencer"
)

const (
	resource = "inventory:sku-42"
	within   = 90 * time.Second // for whatever must happen at last
)

// open returns a back end whose session is long enough for the TTLs of the tests.
func open(t testing.TB, servers []string, opts ...zklock.Option) *zklock.Backend {
	t.Helper()
	b, err := zklock.New(servers, append([]zklock.Option{zklock.WithSessionTimeout(80 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func request() lock.Request {
	return lock.Request{Resource: "inventory:" + rand.Text(), Nonce: rand.Text(), Holder: "web-1", TTL: time.Minute}
}

func rival(r lock.Request) lock.Request {
	r.Nonce = rand.Text()
	return r
}

func acquire(t testing.TB, b *zklock.Backend, r lock.Request) guard.Token {
	t.Helper()
	token, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	return token
}

func locker(t testing.TB, b lock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// lease acquires a free lock for a TTL that a busy machine may need to connect.
func lease(t testing.TB, l *lock.Locker, name string) (s *lock.Lease) {
	t.Helper()
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = l.Acquire(t.Context(), name)
		return err == nil
	}, within, time.Millisecond)
	return s
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// client returns a plain client, to look at nodes and to make some by hand.
func client(t testing.TB, servers []string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect(servers, time.Minute, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// nodes returns the names in the directory of a resource.
func nodes(t testing.TB, c *zk.Conn, b *zklock.Backend, resource string) []string {
	t.Helper()
	_, err := c.Sync(b.Dir(resource))
	require.NoError(t, err)
	names, _, err := c.Children(b.Dir(resource))
	if errors.Is(err, zk.ErrNoNode) { // ZooKeeper has removed the empty directory
		return nil
	}
	require.NoError(t, err)
	return names
}

// keep makes a node in the directory of a resource that is no lock. ZooKeeper removes an
// empty directory at its own time; making it again is a trip more, and its sequence
// begins anew.
func keep(t testing.TB, c *zk.Conn, b *zklock.Backend, resource string) {
	t.Helper()
	_, err := c.Create(b.Dir(resource)+"/keep", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
}

func TestBackend(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, servers) })
}

func TestTheTokenIsTheZxidOfTheNodesCreation(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, r := open(t, servers), request()
	token := acquire(t, b, r)
	require.NoError(t, b.Renew(t.Context(), r))
	c := client(t, servers)
	names := nodes(t, c, b, r.Resource)
	require.Len(t, names, 1)
	_, stat, err := c.Get(b.Dir(r.Resource) + "/" + names[0])
	require.NoError(t, err)
	require.EqualValues(t, stat.Czxid, token)
	require.NotEqual(t, stat.Czxid, stat.Mzxid, "a renewal is a write")
}

// A repair makes the tokens of one resource greater, for good, and no others.
func TestS9_TheOffsetOfARepairIsKept(t *testing.T) {
	t.Parallel()
	b, r, other := open(t, servertest.ZooKeeper(t)), request(), request()
	r.After = 1 << 50
	first := acquire(t, b, r)
	require.EqualValues(t, r.After+1, first)
	r.After = first // greater, not equal
	first = acquire(t, b, r)
	require.Greater(t, first, r.After)
	require.NoError(t, b.Release(t.Context(), r))
	next := rival(r)
	next.After = 0
	require.Greater(t, acquire(t, b, next), first)
	require.Less(t, acquire(t, b, other), first)
	require.Len(t, nodes(t, client(t, servertest.ZooKeeper(t)), b, r.Resource), 2, "the lock and one offset")
}

// The store remembers what an ensemble that was built anew does not.
func TestS13_AnEnsembleThatForgotIsRepairedFromTheStore(t *testing.T) {
	t.Parallel()
	store, name := guard.NewMemory(), request().Resource
	before := guard.Fence{Resource: name, Token: 1 << 50, Nonce: "before"}
	require.NoError(t, store.Raise(t.Context(), before))
	l := locker(t, open(t, servertest.ZooKeeper(t)), lock.WithGuards(store))
	last := before.Token
	for range 3 {
		s, err := l.Acquire(t.Context(), name)
		require.NoError(t, err)
		require.Greater(t, s.Fence().Token, last)
		last = s.Fence().Token
		require.NoError(t, s.Release(t.Context()))
	}
}

func TestS18_APoisonedFenceIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	b, r := open(t, servertest.ZooKeeper(t)), request()
	r.After = math.MaxInt64 - 1
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `an operator must run "fencectl rebase"`)
	r.After = math.MaxInt64
	_, err = b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
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

func TestBadRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	b := open(t, []string{"127.0.0.1:1"})
	for says, spoil := range map[string]func(r *lock.Request){
		"TTL 0s":               func(r *lock.Request) { r.TTL = 0 },
		"TTL -1s":              func(r *lock.Request) { r.TTL = -time.Second },
		"TTL 2562047h":         func(r *lock.Request) { r.TTL = math.MaxInt64 },
		"WithSessionTimeout":   func(r *lock.Request) { r.TTL = time.Hour },
		"TTL of 1m0s at most:": func(r *lock.Request) { r.TTL = 61 * time.Second },
		"above -5":             func(r *lock.Request) { r.After = -5 },
		"the nonce is empty":   func(r *lock.Request) { r.Nonce = "" },
		"control character":    func(r *lock.Request) { r.Nonce = "a\x00" },
		"resource name":        func(r *lock.Request) { r.Resource = "" },
	} {
		r := request()
		spoil(&r)
		_, err := b.Acquire(t.Context(), r)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.ErrorIs(t, b.Renew(t.Context(), r), guard.ErrInvalid)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]struct {
		servers []string
		opt     zklock.Option
	}{
		"no servers":                  {servers: nil},
		`server ""`:                   {servers: []string{""}},
		`server "zk://a:1"`:           {servers: []string{"zk://a:1"}},
		"a path by WithPrefix":        {servers: []string{"a:1/app"}},
		"name each by itself":         {servers: []string{"a:1,b:1"}},
		"WithAuth what proves":        {servers: []string{"me:s3cret@a:1"}},
		"session timeout 1ms":         {opt: zklock.WithSessionTimeout(time.Millisecond)},
		`prefix "fencing"`:            {opt: zklock.WithPrefix("fencing")},
		`prefix "/a//b"`:              {opt: zklock.WithPrefix("/a//b")},
		`prefix "/"`:                  {opt: zklock.WithPrefix("/")},
		`prefix "/a/../b"`:            {opt: zklock.WithPrefix("/a/../b")},
		"an empty ACL":                {opt: zklock.WithACL()},
		"the dialer is nil":           {opt: zklock.WithDialer(nil)},
		"proof of WithAuth is empty:": {opt: zklock.WithAuth("digest", "")},
	} {
		servers := c.servers
		if c.opt == nil {
			c.opt = func(*zklock.Config) {}
		} else {
			servers = []string{"127.0.0.1:1"}
		}
		_, err := zklock.New(servers, c.opt)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := zklock.New([]string{"127.0.0.1:1"}, nil)
	require.ErrorContains(t, err, "an option is nil")
}

// The defaults of ZooKeeper, of this package and of the locker.
func TestTheDefaultsFitTogether(t *testing.T) {
	t.Parallel()
	e := servertest.NewZooKeeper(t, 1, localserver.ZooKeeperOptions{Settings: map[string]string{
		"tickTime": "2000", "minSessionTimeout": "-1", "maxSessionTimeout": "-1",
	}})
	b, err := zklock.New(e.Addrs())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	l := locker(t, b)
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context()))
	_, err = open(t, e.Addrs()).Acquire(t.Context(), request())
	require.ErrorContains(t, err, "ZooKeeper grants 40s; raise its maxSessionTimeout, or take a TTL of 30s at most")
}

// A TTL that the granted session does not cover is an error, not a lock that ends early.
func TestATTLThatTheGrantedSessionDoesNotCoverIsRefused(t *testing.T) {
	t.Parallel()
	servers := servertest.NewZooKeeper(t, 1, localserver.ZooKeeperOptions{Settings: map[string]string{"maxSessionTimeout": "6000"}}).Addrs()
	b, r := open(t, servers), request()
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorContains(t, err, "a TTL of 1m0s needs a session timeout of 1m20s, and ZooKeeper grants 6s; raise its maxSessionTimeout, or take a TTL of 4.5s at most")
	r.TTL = 4500 * time.Millisecond
	acquire(t, b, r)
	r.TTL = 5 * time.Second
	require.ErrorIs(t, b.Renew(t.Context(), r), guard.ErrInvalid)
}
