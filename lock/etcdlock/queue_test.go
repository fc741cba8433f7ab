package etcdlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
)

// A release wakes the one whose turn it is and, once that one has the lock, the next.
// Every other waiter is left in peace.
func TestInAQueueEachWatchesTheOneBefore(t *testing.T) {
	t.Parallel()
	b, holder := open(t, connect(t, servertest.Etcd(t)...)), request()
	turn := func(r lock.Request) error {
		_, err := b.AcquireInTurn(t.Context(), r, time.Minute)
		return err
	}
	require.NoError(t, turn(holder))
	waiters := []lock.Request{rival(holder), rival(holder), rival(holder)}
	wakes := make([]<-chan struct{}, len(waiters))
	for i, r := range waiters {
		require.ErrorIs(t, turn(r), lock.ErrHeld)
		wake, stop := b.Watch(r)
		defer stop()
		<-wake // it is in effect
		wakes[i] = wake
	}
	woken := func(i int) {
		t.Helper()
		select {
		case <-wakes[i]:
		case <-time.After(within):
			require.FailNow(t, "the waiter whose turn it is sleeps", "waiter %d", i)
		}
	}
	asleep := func(from int) {
		t.Helper()
		for i := from; i < len(wakes); i++ {
			require.Empty(t, wakes[i], "waiter %d is woken out of turn", i)
		}
	}
	last := holder
	for i, r := range waiters {
		require.NoError(t, b.Release(t.Context(), last))
		woken(i)
		asleep(i + 1)
		require.NoError(t, turn(r))
		if i+1 < len(waiters) {
			woken(i + 1) // the one before it is gone from the queue
			asleep(i + 2)
			<-wakes[i+1] // it watches the lock from now on
		}
		last = r
	}
	require.NoError(t, b.Release(t.Context(), last))
}

// Whoever leaves the queue, or dies in it, keeps nobody behind it waiting.
func TestAPlaceThatEndsBringsTheNextForward(t *testing.T) {
	t.Parallel()
	b, holder := open(t, connect(t, servertest.Etcd(t)...)), request()
	first, second := rival(holder), rival(holder)
	for _, leaves := range []bool{true, false} {
		_, err := b.AcquireInTurn(t.Context(), holder, time.Minute)
		require.NoError(t, err)
		_, err = b.AcquireInTurn(t.Context(), first, time.Second)
		require.ErrorIs(t, err, lock.ErrHeld)
		_, err = b.AcquireInTurn(t.Context(), second, time.Minute)
		require.ErrorIs(t, err, lock.ErrHeld)
		wake, stop := b.Watch(second)
		<-wake
		require.NoError(t, b.Release(t.Context(), holder))
		if leaves {
			require.NoError(t, b.Withdraw(t.Context(), first))
		}
		select {
		case <-wake:
		case <-time.After(within):
			require.FailNow(t, "nobody wakes the next one", "the one before left: %t", leaves)
		}
		stop()
		_, err = b.AcquireInTurn(t.Context(), second, time.Minute)
		require.NoError(t, err)
		require.NoError(t, b.Release(t.Context(), second))
		holder, first, second = rival(holder), rival(holder), rival(holder)
	}
}

// The one before leaves after it was looked for and before the watch for its end begins.
func TestAPlaceThatEndsBeforeItIsWatchedBringsTheNextForward(t *testing.T) {
	t.Parallel()
	urls := servertest.Etcd(t)
	b, holder := open(t, connect(t, urls...)), request()
	first, second := rival(holder), rival(holder)
	_, err := b.AcquireInTurn(t.Context(), holder, time.Minute)
	require.NoError(t, err)
	for _, r := range []lock.Request{first, second} {
		_, err := b.AcquireInTurn(t.Context(), r, time.Minute)
		require.ErrorIs(t, err, lock.ErrHeld)
	}

	asked, begin := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client, err := clientv3.New(clientv3.Config{Endpoints: urls, DialOptions: []grpc.DialOption{
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if method == "/etcdserverpb.Watch/Watch" {
				once.Do(func() { close(asked) })
				select {
				case <-begin:
				case <-ctx.Done():
				}
			}
			return next(ctx, d, cc, method, opts...)
		}),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	wake, stop := open(t, client).Watch(second)
	defer stop()
	<-asked
	require.NoError(t, b.Withdraw(t.Context(), first))
	close(begin)
	<-wake
	_, err = b.AcquireInTurn(t.Context(), second, time.Minute)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, b.Release(t.Context(), holder))
	for err != nil { // it may be woken to no avail before
		select {
		case <-wake:
		case <-time.After(within):
			require.FailNow(t, "it sleeps beside the place of the one that left")
		}
		_, err = b.AcquireInTurn(t.Context(), second, time.Minute)
	}
}
