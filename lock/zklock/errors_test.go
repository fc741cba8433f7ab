package zklock_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// A server that is not there, one whose name nobody knows, and one that says nothing.
func TestAServerThatCannotServeIsAnErrorThatSaysWhy(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = mute.Close() })
	for says, server := range map[string]string{
		"connection refused":     "127.0.0.1:1",
		"lookup nowhere.invalid": "nowhere.invalid:2181",
		"granted":                mute.Addr().String(), // no session, or none yet
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			b := open(t, []string{server})
			for what, call := range map[string]func(ctx context.Context, r lock.Request) error{
				"acquire": func(ctx context.Context, r lock.Request) error { _, err := b.Acquire(ctx, r); return err },
				"release": b.Release,
				"inspect": func(ctx context.Context, r lock.Request) error { _, err := b.Inspect(ctx, r.Resource); return err },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				begun := time.Now()
				err := call(ctx, request())
				require.ErrorIs(t, err, context.DeadlineExceeded, what)
				require.NotErrorIs(t, err, lock.ErrHeld)
				require.ErrorContains(t, err, says)
				require.ErrorContains(t, err, "zklock: "+what)
				require.Less(t, time.Since(begun), 5*time.Second)
			}
		})
	}
}

func TestACallWithoutADeadlineHangsNeither(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	_, err := open(t, []string{"127.0.0.1:1"}).Acquire(context.Background(), request())
	require.ErrorContains(t, err, "no answer within 10s")
	require.Less(t, time.Since(begun), 20*time.Second)
}

// A connection that comes late gets no session, whose locks nobody would end.
func TestAConnectionThatComesAfterCloseIsNotUsed(t *testing.T) {
	t.Parallel()
	dialed, answer := make(chan struct{}, 1), make(chan net.Conn)
	b, err := zklock.New([]string{"127.0.0.1:1"}, zklock.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
		dialed <- struct{}{}
		return <-answer, nil
	}))
	require.NoError(t, err)
	<-dialed
	require.NoError(t, b.Close())
	server, ours := net.Pipe()
	require.NoError(t, server.SetReadDeadline(time.Now().Add(within)))
	answer <- ours
	n, err := server.Read(make([]byte, 100))
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, n)
}

// Servers that hang are left for one that answers, wherever in the list it is.
func TestAServerThatSaysNothingIsLeft(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	for range 4 {
		mute, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = mute.Close() })
		servers = append(servers, mute.Addr().String())
	}
	r := request()
	r.TTL = time.Second
	acquire(t, open(t, servers, zklock.WithSessionTimeout(4*time.Second)), r)
}

func TestAClientWithoutRightsIsToldWhichItNeeds(t *testing.T) {
	t.Parallel()
	servers, prefix := servertest.ZooKeeper(t), "/acl-"+rand.Text()
	owner := open(t, servers, zklock.WithPrefix(prefix), zklock.WithAuth("digest", "app:s3cret"), zklock.WithACL(zk.AuthACL(zk.PermAll)...))
	r := request()
	acquire(t, owner, r)
	require.NoError(t, owner.Renew(t.Context(), r))
	for name, opts := range map[string][]zklock.Option{
		"nobody":           nil,
		"another":          {zklock.WithAuth("digest", "other:s3cret")},
		"a wrong password": {zklock.WithAuth("digest", "app:s3cret2")},
	} {
		b := open(t, servers, append(opts, zklock.WithPrefix(prefix))...)
		_, err := b.Acquire(t.Context(), rival(r))
		require.ErrorIs(t, err, zk.ErrNoAuth, name)
		require.ErrorContains(t, err, "the rights to read, write, create and delete below "+prefix)
		require.NotContains(t, err.Error(), "s3cret")
		_, err = b.Inspect(t.Context(), r.Resource)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorIs(t, b.Release(t.Context(), rival(r)), zk.ErrNoAuth)
	}
	same := open(t, servers, zklock.WithPrefix(prefix), zklock.WithAuth("digest", "app:s3cret"))
	_, err := same.Acquire(t.Context(), rival(r))
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, owner.Release(t.Context(), r))
}

func TestAnAuthThatZooKeeperDoesNotKnowIsAnError(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	_, err := open(t, servers, zklock.WithAuth("retina", "s3cret")).Acquire(t.Context(), request())
	require.ErrorContains(t, err, "does not accept what WithAuth gives")
	require.NotContains(t, err.Error(), "s3cret")
	_, err = open(t, servers, zklock.WithACL(zk.AuthACL(zk.PermAll)...)).Acquire(t.Context(), request())
	require.ErrorContains(t, err, `one for "auth" needs WithAuth`)
}

// The session keeps its rights when it goes on to another connection, and the next
// session has them too.
func TestTheNextConnectionIsAuthenticated(t *testing.T) {
	t.Parallel()
	e := servertest.NewZooKeeper(t, 1, localserver.ZooKeeperOptions{})
	l := link(t, e.Addrs()[0])
	b := open(t, []string{l.Addr()}, zklock.WithAuth("digest", "app:s3cret"), zklock.WithACL(zk.AuthACL(zk.PermAll)...))
	r := request()
	acquire(t, b, r)
	l.Reset()
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, e.Members[0].Restart(t.Context()))
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
}
