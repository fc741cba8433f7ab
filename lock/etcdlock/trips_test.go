package etcdlock_test

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
)

// What the README promises.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	var trips atomic.Int64
	client, err := clientv3.New(clientv3.Config{Endpoints: servertest.Etcd(t), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			trips.Add(1)
			return next(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			trips.Add(1) // a question and its answer
			return next(ctx, d, cc, method, opts...)
		}),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	b, r := open(t, client), request()
	queued := rival(r)
	for _, c := range []struct {
		what string
		want int64
		call func() error
	}{
		{"acquire", 3, func() error { _, err := b.Acquire(t.Context(), r); return err }},
		{"refused", 2, func() error {
			_, err := b.Acquire(t.Context(), rival(r))
			require.ErrorIs(t, err, lock.ErrHeld)
			return nil
		}},
		{"queued", 4, func() error {
			_, err := b.AcquireInTurn(t.Context(), queued, time.Minute)
			require.ErrorIs(t, err, lock.ErrHeld)
			return nil
		}},
		{"refused in the queue", 3, func() error {
			_, err := b.AcquireInTurn(t.Context(), queued, time.Minute)
			require.ErrorIs(t, err, lock.ErrHeld)
			return nil
		}},
		{"renew", 2, func() error { return b.Renew(t.Context(), r) }},
		{"release", 2, func() error { return b.Release(t.Context(), r) }},
		{"in turn, queued", 4, func() error { _, err := b.AcquireInTurn(t.Context(), queued, time.Minute); return err }},
		{"in turn, free", 3, func() error { _, err := b.AcquireInTurn(t.Context(), request(), time.Minute); return err }},
	} {
		before := trips.Load()
		require.NoError(t, c.call(), c.what)
		require.Equal(t, c.want, trips.Load()-before, c.what)
	}
}

// A contender that is refused writes nothing, however often it asks.
func TestARefusalWritesNothing(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.NewEtcd(t, 1).URLs()...)
	b, r := open(t, client), request()
	acquire(t, b, r)
	before, err := client.Status(t.Context(), client.Endpoints()[0])
	require.NoError(t, err)
	for range 10 {
		_, err := b.Acquire(t.Context(), rival(r))
		require.ErrorIs(t, err, lock.ErrHeld)
	}
	after, err := client.Status(t.Context(), client.Endpoints()[0])
	require.NoError(t, err)
	require.Equal(t, before.RaftIndex, after.RaftIndex)
}

// The waiters of several processes are woken, and do not wait for their next
// question.
func TestAReleaseWakesWhoWaits(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	name := "inventory:" + rand.Text()
	holder := locker(t, open(t, client))
	s, err := holder.Acquire(t.Context(), name)
	require.NoError(t, err)
	// Watched by hand: the wake-up must come from the release and not from a timer.
	wake, stop := open(t, client).Watch(lock.Request{Resource: name})
	defer stop()
	<-wake
	other, stopOther := open(t, client).Watch(lock.Request{Resource: name + "-other"})
	defer stopOther()
	<-other
	require.NoError(t, s.Release(t.Context()))
	select {
	case <-wake:
	case <-time.After(within):
		require.FailNow(t, "the release woke nobody")
	}
	select {
	case <-other:
		require.FailNow(t, "the release of another resource woke a waiter")
	default:
	}
}

// A holder that died wakes the waiters too, when its lease ends.
func TestTheEndOfALeaseWakesWhoWaits(t *testing.T) {
	t.Parallel()
	b, r := open(t, connect(t, servertest.Etcd(t)...)), request()
	r.TTL = time.Second
	acquire(t, b, r)
	wake, stop := b.Watch(r)
	defer stop()
	<-wake
	select {
	case <-wake:
	case <-time.After(within):
		require.FailNow(t, "the end of the lease woke nobody")
	}
	acquire(t, b, rival(r))
}

// Since the watch began, etcd compacted its history: nothing is missed.
func TestAWatchSurvivesACompaction(t *testing.T) {
	t.Parallel()
	urls := servertest.NewEtcd(t, 1).URLs()
	direct, link := connect(t, urls...), newLink(t, urls[0])
	b, r := open(t, direct), request()
	acquire(t, b, r)
	wake, stop := open(t, connect(t, link.url())).Watch(r)
	defer stop()
	<-wake
	link.cut()
	require.NoError(t, b.Release(t.Context(), r))
	reply, err := direct.Put(t.Context(), "another", "key")
	require.NoError(t, err)
	_, err = direct.Compact(t.Context(), reply.Header.Revision)
	require.NoError(t, err)
	link.drop()
	link.heal()
	select {
	case <-wake:
	case <-time.After(within):
		require.FailNow(t, "a compaction lost the wake-up")
	}
}

func TestAUserWithoutRightsIsToldWhichItNeeds(t *testing.T) {
	t.Parallel()
	urls := servertest.NewEtcd(t, 1).URLs()
	root := connect(t, urls...)
	for _, user := range []string{"root", "app"} {
		_, err := root.UserAdd(t.Context(), user, "s3cret-"+user)
		require.NoError(t, err)
		_, err = root.RoleAdd(t.Context(), user)
		require.NoError(t, err)
		_, err = root.UserGrantRole(t.Context(), user, user)
		require.NoError(t, err)
	}
	_, err := root.AuthEnable(t.Context())
	require.NoError(t, err)
	app, err := clientv3.New(clientv3.Config{Endpoints: urls, Username: "app", Password: "s3cret-app", Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = app.Close() })
	_, err = open(t, app).Acquire(t.Context(), request())
	require.ErrorContains(t, err, `read and write on the keys that begin with "fencing/"`)
	require.NotContains(t, err.Error(), "s3cret")

	admin, err := clientv3.New(clientv3.Config{Endpoints: urls, Username: "root", Password: "s3cret-root", Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	_, err = admin.RoleGrantPermission(t.Context(), "app", "fencing/", clientv3.GetPrefixRangeEnd("fencing/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	b, r := open(t, app), request()
	acquire(t, b, r)
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, b.Release(t.Context(), r))
}

func BenchmarkAcquireRelease(b *testing.B) {
	backend := open(b, connect(b, servertest.Etcd(b)...))
	for b.Loop() {
		r := request()
		acquire(b, backend, r)
		require.NoError(b, backend.Release(b.Context(), r))
	}
}
