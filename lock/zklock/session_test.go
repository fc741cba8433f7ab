package zklock_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/faultlink"
	"github.com/go-fencing/fencing/internal/outagetest"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

func link(t testing.TB, to string) *faultlink.Link {
	t.Helper()
	l, err := faultlink.New(to)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// A server that hangs is left after a third of the call's time, long before the client
// itself would take it for dead.
func TestAServerThatHangsIsLeftInTime(t *testing.T) {
	t.Parallel()
	server := servertest.ZooKeeper(t)[0]
	links, addrs := map[string]*faultlink.Link{}, []string{}
	for range 2 { // two ways to it
		l := link(t, server)
		links[l.Addr()], addrs = l, append(addrs, l.Addr())
	}
	var used atomic.Value // the address of the last connection
	b := open(t, addrs, zklock.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		used.Store(address)
		return net.DialTimeout(network, address, timeout)
	}))
	r := request()
	acquire(t, b, r)
	links[used.Load().(string)].Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	require.NoError(t, b.Renew(ctx, r))
}

// The holder is cut off: its lease is lost on time by its own clock, the end of its
// session frees the lock for others, and when it is back it is told and fenced.
func TestTheSessionExpiresWhileTheHolderIsCutOff(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	l := link(t, servers[0])
	b, store := open(t, []string{l.Addr()}, zklock.WithSessionTimeout(2*time.Second)), guard.NewMemory()
	name := request().Resource
	s := lease(t, locker(t, b, lock.WithTTL(1500*time.Millisecond), lock.WithGuards(store)), name)
	l.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	next, err := locker(t, open(t, servers), lock.WithGuards(store)).Acquire(ctx, name)
	require.NoError(t, err)
	require.True(t, time.Now().After(s.Deadline()), "another has the lock before its holder must presume it lost")
	receive(t, s.Lost(), "the holder does not learn of the loss")
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	require.ErrorIs(t, store.Write(guard.NewContext(ctx, s.Fence()), name, func() error { return nil }), guard.ErrStale)
	l.Heal()
	r := lock.Request{Resource: name, Nonce: s.Fence().Nonce, TTL: time.Second}
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.Renew(ctx, r)
		return err != nil && ctx.Err() == nil
	}, within, 10*time.Millisecond)
	require.ErrorIs(t, b.Renew(ctx, r), lock.ErrLost)
	require.ErrorIs(t, b.Release(ctx, r), lock.ErrLost)
	require.NoError(t, next.Release(ctx))
	acquire(t, b, lock.Request{Resource: name, Nonce: "again", TTL: time.Second}) // in its next session
}

func TestACutLinkThatHealsInTimeLosesNothing(t *testing.T) {
	t.Parallel()
	l := link(t, servertest.ZooKeeper(t)[0])
	outagetest.OfLink(t, outagetest.Failure{
		Begin: func() error { l.Cut(); return nil },
		End:   func() error { l.Heal(); return nil },
	}, open(t, []string{l.Addr()}))
}

// A caller who gives up after a moment is no reason to leave a server that is slow: the
// connection is that of all locks.
func TestAHastyCallKeepsTheConnection(t *testing.T) {
	t.Parallel()
	l := link(t, servertest.ZooKeeper(t)[0])
	var dials atomic.Int64
	b := open(t, []string{l.Addr()}, zklock.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		dials.Add(1)
		return net.DialTimeout(network, address, timeout)
	}))
	acquire(t, b, request()) // connected
	before := dials.Load()
	l.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := b.Acquire(ctx, request())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	l.Heal()
	acquire(t, b, request())
	require.Equal(t, before, dials.Load())
}

// The node is created, and the reply to that is lost.
func TestS21_AGhostIsFoundByItsNonce(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	l := link(t, servers[0])
	b, r := open(t, []string{l.Addr()}), request()
	acquire(t, b, rival(request())) // connected
	l.LoseReply(zklock.Mark(r.Nonce))
	token := acquire(t, b, r)
	require.Equal(t, 1, l.Lost())
	require.Len(t, nodes(t, client(t, servers), b, r.Resource), 1)
	require.Equal(t, token, acquire(t, b, r))
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
	require.Empty(t, nodes(t, client(t, servers), b, r.Resource))
}

// The same, and the caller gives up: the release of its nonce finds the node; where
// nobody releases, it ends with its TTL, however long the session is.
func TestAGhostOfACallThatWasGivenUpEnds(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	for name, released := range map[string]bool{"released": true, "forgotten": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := link(t, servers[0])
			b, r := open(t, []string{l.Addr()}), request()
			acquire(t, b, rival(request())) // connected
			r.TTL = 3 * time.Second
			dialed := client(t, servers)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l.LoseReply(zklock.Mark(r.Nonce))
			failure := make(chan error, 1)
			go func() {
				_, err := b.Acquire(ctx, r)
				failure <- err
			}()
			require.Eventually(t, func() bool { return l.Lost() == 1 }, within, time.Millisecond)
			cancel()
			if err := <-failure; err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			if released {
				if err := b.Release(t.Context(), r); err != nil {
					require.ErrorIs(t, err, lock.ErrLost)
				}
				require.Empty(t, nodes(t, dialed, b, r.Resource))
			}
			require.Eventually(t, func() bool { return len(nodes(t, dialed, b, r.Resource)) == 0 }, within, 50*time.Millisecond)
		})
	}
}

// Peers' fault 17: a failed release forgets the lock, and the node stays.
func TestAReleaseThatFailedIsDoneInTheBackground(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	l := link(t, servers[0])
	b, r := open(t, []string{l.Addr()}), request()
	acquire(t, b, r)
	l.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Release(ctx, r), context.DeadlineExceeded)
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost, "it never comes back")
	_, err := b.Acquire(ctx, r)
	require.Error(t, err)
	l.Reset() // the deletion never arrives
	l.Heal()
	other := open(t, servers)
	require.Eventually(t, func() bool { _, err := other.Acquire(t.Context(), rival(r)); return err == nil }, within, 10*time.Millisecond)
	if err := b.Release(t.Context(), r); err != nil {
		require.ErrorIs(t, err, lock.ErrLost)
	}
}

// A detour holds back what a connection sends from a certain request on, and lets it
// reach the server when the session is elsewhere.
type detour struct {
	mu      sync.Mutex
	pattern []byte
	late    []byte
	conn    net.Conn
	caught  chan struct{}
}

func (d *detour) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return &detoured{Conn: conn, detour: d}, nil
}

type detoured struct {
	net.Conn
	detour *detour
}

func (c *detoured) Write(p []byte) (int, error) {
	d := c.detour
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == nil && d.pattern != nil && bytes.Contains(p, d.pattern) {
		d.conn = c.Conn
		close(d.caught)
	}
	if d.conn == c.Conn {
		d.late = append(d.late, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *detoured) Close() error {
	c.detour.mu.Lock()
	defer c.detour.mu.Unlock()
	if c.detour.conn == c.Conn {
		return c.Conn.SetReadDeadline(time.Now()) // the client stops reading, the network still has what it sent
	}
	return c.Conn.Close()
}

// A creation is under way at one server while the session has gone on to another, where
// the nonce is released: ZooKeeper must not carry it out any more. Without that rule of
// the server's, a release would not be the last word.
func TestACreationThatComesLateIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	e := ensemble(t)
	d := &detour{caught: make(chan struct{})}
	b, r := open(t, e.Addrs(), zklock.WithDialer(d.dial)), request()
	acquire(t, b, rival(request())) // connected
	d.mu.Lock()
	d.pattern = []byte(zklock.Mark(r.Nonce))
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failure := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, r)
		failure <- err
	}()
	<-d.caught
	cancel()
	require.ErrorIs(t, <-failure, context.Canceled)
	// The server says nothing, so that the session goes on to the next.
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	d.mu.Lock()
	_, err := d.conn.Write(d.late)
	d.mu.Unlock()
	require.NoError(t, err)
	require.NoError(t, d.conn.SetReadDeadline(time.Now().Add(within)))
	_, err = d.conn.Read(make([]byte, 1<<10)) // refused, or hung up
	if err != nil {
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, d.conn.Close())
	for _, m := range e.Members {
		require.Empty(t, nodes(t, client(t, []string{m.Addr()}), b, r.Resource))
	}
	acquire(t, b, rival(r))
}

// A hook does something just before the first request that contains pattern is sent.
type hook struct {
	pattern string
	do      func()
	once    sync.Once
}

func (h *hook) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	return hooked{conn, h}, err
}

type hooked struct {
	net.Conn
	hook *hook
}

func (c hooked) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(c.hook.pattern)) {
		c.hook.once.Do(c.hook.do)
	}
	return c.Conn.Write(p)
}

// What is not the holder's any more must not be granted, nor make tokens greater.
func TestTheLockEndsWhileItsTokenIsRaised(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	c, r := client(t, servers), request()
	h := &hook{pattern: "offset-"}
	b := open(t, servers, zklock.WithDialer(h.dial))
	var gone string
	h.do = func() {
		gone = nodes(t, c, b, r.Resource)[0]
		keep(t, c, b, r.Resource)
		require.NoError(t, c.Delete(b.Dir(r.Resource)+"/"+gone, -1))
	}
	r.After = 1 << 50
	require.Greater(t, acquire(t, b, r), r.After)
	names := nodes(t, c, b, r.Resource)
	require.Len(t, names, 3)
	require.NotContains(t, names, gone)
	require.NoError(t, b.Renew(t.Context(), r))
}

// Not parallel: it looks at the goroutines of the process.
func TestNothingIsLeftBehind(t *testing.T) {
	servers := servertest.ZooKeeper(t)
	before := goleak.IgnoreCurrent()
	l, err := faultlink.New(servers[0])
	require.NoError(t, err)
	b, err := zklock.New([]string{l.Addr()})
	require.NoError(t, err)
	r := request()
	r.TTL = 20 * time.Second
	acquire(t, b, r)
	_, stop := b.Watch(lock.Request{Resource: r.Resource})
	_, forgotten := b.Watch(lock.Request{Resource: r.Resource})
	_ = forgotten
	stop()
	_, err = b.Acquire(t.Context(), rival(r))
	require.ErrorIs(t, err, lock.ErrHeld)
	l.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Renew(ctx, r), context.DeadlineExceeded)
	require.ErrorIs(t, b.Release(ctx, r), context.DeadlineExceeded)
	require.NoError(t, b.Close())
	require.NoError(t, l.Close())
	for range 30 { // each looks for half a second
		if err = goleak.Find(before); err == nil {
			break
		}
	}
	require.NoError(t, err)
}
