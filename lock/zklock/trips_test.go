package zklock_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// count returns a dialer that counts requests: the client writes each by itself.
func count(requests *atomic.Int64) func(network, address string, timeout time.Duration) (net.Conn, error) {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, timeout)
		return counted{conn, requests}, err
	}
}

type counted struct {
	net.Conn
	requests *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	const ping = -2 // where a request has its number
	if len(p) >= 8 && int32(binary.BigEndian.Uint32(p[4:])) != ping {
		c.requests.Add(1)
	}
	return c.Conn.Write(p)
}

// What the README promises. The last two requests of an acquisition go together, in one
// round trip.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	requests := new(atomic.Int64)
	servers := servertest.ZooKeeper(t)
	b, r := open(t, servers, zklock.WithDialer(count(requests))), request()
	first := rival(r)
	acquire(t, b, first) // makes the directory
	keep(t, client(t, servers), b, r.Resource)
	require.NoError(t, b.Release(t.Context(), first))
	for _, c := range []struct {
		what string
		want int64
		call func() error
	}{
		{"acquire", 4, func() error { _, err := b.Acquire(t.Context(), r); return err }},
		{"refused", 2, func() error {
			_, err := b.Acquire(t.Context(), rival(r))
			require.ErrorIs(t, err, lock.ErrHeld)
			return nil
		}},
		{"renew", 1, func() error { return b.Renew(t.Context(), r) }},
		{"release", 1, func() error { return b.Release(t.Context(), r) }},
	} {
		before := requests.Load()
		require.NoError(t, c.call(), c.what)
		require.Equal(t, c.want, requests.Load()-before, c.what)
	}
}

// A contender that is refused writes nothing, however often it asks.
func TestARefusalWritesNothing(t *testing.T) {
	t.Parallel()
	b, r := open(t, servertest.NewZooKeeper(t, 1, localserver.ZooKeeperOptions{}).Addrs()), request()
	before := acquire(t, b, r)
	for range 10 {
		_, err := b.Acquire(t.Context(), rival(r))
		require.ErrorIs(t, err, lock.ErrHeld)
	}
	require.Equal(t, before+2, acquire(t, b, request()), "zxids: one for the directory, one for the node")
}

// Of those who wait, a release wakes one; when that one leaves, the next.
func TestAReleaseWakesOneWaiter(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, r, c := open(t, servers), request(), client(t, servers)
	acquire(t, b, r)
	var wakes []<-chan struct{}
	var stops []func()
	for i := range 4 {
		wake, stop := open(t, servers).Watch(lock.Request{Resource: r.Resource})
		defer stop()
		receive(t, wake, "the watch never comes into effect")
		require.Len(t, nodes(t, c, b, r.Resource), i+2)
		wakes, stops = append(wakes, wake), append(stops, stop)
	}
	for range 3 { // renewals wake nobody
		require.NoError(t, b.Renew(t.Context(), r))
	}
	require.NoError(t, b.Release(t.Context(), r))
	for i := range wakes {
		receive(t, wakes[i], "a release wakes nobody")
		for j, other := range wakes[i+1:] {
			require.Empty(t, other, "waiter %d was woken with waiter %d", i+1+j, i)
		}
		if i == 1 { // another was faster: it is woken again
			r = rival(r)
			acquire(t, b, r)
			require.NoError(t, b.Release(t.Context(), r))
			receive(t, wakes[i], "the second release wakes nobody")
		}
		stops[i]()
	}
	require.Eventually(t, func() bool { return len(nodes(t, c, b, r.Resource)) == 0 }, within, 10*time.Millisecond)
}

func receive(t testing.TB, wake <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(within):
		require.FailNow(t, why)
	}
}

// A waiter's connection broke, and the lock was released meanwhile.
func TestAWatchSurvivesItsConnection(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	l := link(t, servers[0])
	b, r := open(t, servers), request()
	acquire(t, b, r)
	wake, stop := open(t, []string{l.Addr()}).Watch(lock.Request{Resource: r.Resource})
	defer stop()
	receive(t, wake, "the watch never comes into effect")
	l.Cut()
	require.NoError(t, b.Release(t.Context(), r))
	l.Reset()
	l.Heal()
	receive(t, wake, "the wake-up was lost with the connection")
}

// A waiter's session expired, and its node with it.
func TestAWatchSurvivesItsSession(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	l := link(t, servers[0])
	b, r, c := open(t, servers), request(), client(t, servers)
	acquire(t, b, r)
	wake, stop := open(t, []string{l.Addr()}, zklock.WithSessionTimeout(time.Second)).Watch(lock.Request{Resource: r.Resource})
	defer stop()
	receive(t, wake, "the watch never comes into effect")
	l.Cut()
	require.Eventually(t, func() bool { return len(nodes(t, c, b, r.Resource)) == 1 }, within, 10*time.Millisecond)
	l.Heal()
	require.Eventually(t, func() bool { return len(nodes(t, c, b, r.Resource)) == 2 }, within, 10*time.Millisecond)
	require.NoError(t, b.Release(t.Context(), r))
	receive(t, wake, "the next session does not watch")
}

// Lockers that wait hand a lock over without waiting for their next question.
func TestALockIsHandedOver(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	name := request().Resource
	for _, fair := range []bool{false, true} {
		var opts []lock.Option
		if fair {
			opts = append(opts, lock.WithFair())
		}
		s, err := locker(t, open(t, servers), opts...).Acquire(t.Context(), name)
		require.NoError(t, err)
		got := make(chan guard.Token)
		for range 3 {
			l := locker(t, open(t, servers), opts...)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				s, err := l.Acquire(ctx, name)
				if err != nil {
					t.Errorf("fair %v: %v", fair, err)
					got <- 0
					return
				}
				token := s.Fence().Token
				if err := s.Release(ctx); err != nil {
					t.Errorf("fair %v: %v", fair, err)
				}
				got <- token
			}()
		}
		require.NoError(t, s.Release(t.Context()))
		for range 3 {
			require.Greater(t, <-got, s.Fence().Token)
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	backend := open(b, servertest.ZooKeeper(b))
	for r := request(); b.Loop(); r = rival(r) {
		acquire(b, backend, r)
		require.NoError(b, backend.Release(b.Context(), r))
	}
}
