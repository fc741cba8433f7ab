package etcdlock_test

import (
	"context"
	"crypto/rand"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/etcdlock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/sequencer"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func connect(t testing.TB, urls ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: urls, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func open(t testing.TB, client *clientv3.Client) *etcdlock.Backend {
	t.Helper()
	b, err := etcdlock.New(client)
	require.NoError(t, err)
	return b
}

func request() lock.Request {
	return lock.Request{Resource: "inventory:" + rand.Text(), Nonce: rand.Text(), Holder: "web-1", TTL: time.Minute}
}

func rival(r lock.Request) lock.Request {
	r.Nonce = rand.Text()
	return r
}

func acquire(t testing.TB, b *etcdlock.Backend, r lock.Request) guard.Token {
	t.Helper()
	token, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	return token
}

func TestBackend(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, client) })
}

func TestTheTokenIsTheCreateRevision(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	b, r := open(t, client), request()
	token := acquire(t, b, r)
	require.NoError(t, b.Renew(t.Context(), r))
	reply, err := client.Get(t.Context(), etcdlock.Prefix+"lock/"+r.Resource)
	require.NoError(t, err)
	require.Len(t, reply.Kvs, 1)
	require.EqualValues(t, reply.Kvs[0].CreateRevision, token)
}

// A repair makes the tokens of one resource greater, for good, and no others.
func TestS9_TheOffsetOfARepairIsKept(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	b, r, other := open(t, client), request(), request()
	r.After = 1 << 40
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
}

func TestS18_APoisonedFenceIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	b, r := open(t, connect(t, servertest.Etcd(t)...)), request()
	r.After = math.MaxInt64 - 1
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `an operator must run "fencectl rebase"`)
	r.After = math.MaxInt64
	_, err = b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
}

// Fenced writes in etcd itself: that of a holder whose lock went to another is not
// carried out.
func TestIsOwnerFencesTheUsersOwnTransaction(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	b, r := open(t, client), request()
	fence := guard.Fence{Resource: r.Resource, Token: acquire(t, b, r), Nonce: r.Nonce, Holder: r.Holder}
	write := func(f guard.Fence, value string) bool {
		reply, err := client.Txn(t.Context()).If(etcdlock.IsOwner(f)).Then(clientv3.OpPut("stock/"+r.Resource, value)).Commit()
		require.NoError(t, err)
		return reply.Succeeded
	}
	require.True(t, write(fence, "100"))
	require.NoError(t, b.Release(t.Context(), r))
	require.False(t, write(fence, "99"), "nobody holds the lock")
	successor := rival(r)
	acquire(t, b, successor)
	require.False(t, write(fence, "98"), "another holds the lock")
	require.True(t, write(guard.Fence{Resource: r.Resource, Nonce: successor.Nonce}, "97"))
}

// Peers' fault: the retry of a release frees the lock of the successor.
func TestS27_ARepeatedReleaseFreesNoSuccessor(t *testing.T) {
	t.Parallel()
	b, r := open(t, connect(t, servertest.Etcd(t)...)), request()
	acquire(t, b, r)
	require.NoError(t, b.Release(t.Context(), r))
	successor := rival(r)
	acquire(t, b, successor)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
	require.NoError(t, b.Renew(t.Context(), successor))
}

// The undo of an acquisition may overtake its last step, which then finds no lease.
func TestALateAcquireFindsItsLeaseSpent(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	stalled := &stalledTxn{KV: client.KV, reached: make(chan struct{}), resume: make(chan struct{})}
	slow := connect(t, servertest.Etcd(t)...)
	slow.KV = stalled
	r, failure := request(), make(chan error, 1)
	go func() {
		_, err := open(t, slow).Acquire(t.Context(), r)
		failure <- err
	}()
	<-stalled.reached
	require.ErrorIs(t, open(t, client).Release(t.Context(), r), lock.ErrLost)
	close(stalled.resume)
	require.ErrorContains(t, <-failure, "requested lease not found")
	h, err := open(t, client).Inspect(t.Context(), r.Resource)
	require.NoError(t, err)
	require.Zero(t, h.Token)
}

// stalledTxn holds back a transaction that compares, until resume is closed.
type stalledTxn struct {
	clientv3.KV
	reached, resume chan struct{}
}

func (s *stalledTxn) Txn(ctx context.Context) clientv3.Txn {
	return &heldTxn{s.KV.Txn(ctx), s}
}

type heldTxn struct {
	clientv3.Txn
	stall *stalledTxn
}

func (h *heldTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	close(h.stall.reached)
	<-h.stall.resume
	return h.Txn.If(cs...)
}

// Somebody deleted the key by hand: the lease lives, the lock does not.
func TestAKeyThatWasDeletedIsALostLock(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	b, r := open(t, client), request()
	acquire(t, b, r)
	_, err := client.Delete(t.Context(), etcdlock.Prefix+"lock/"+r.Resource)
	require.NoError(t, err)
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	acquire(t, b, rival(r))
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), r), lock.ErrLost)
}

// etcd rounds up, never down: no rival before the holder's own deadline.
func TestATTLIsRoundedUp(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Etcd(t)...)
	b, r := open(t, client), request()
	r.TTL = 4*time.Second + time.Millisecond
	acquire(t, b, r)
	reply, err := client.Get(t.Context(), etcdlock.Prefix+"lock/"+r.Resource)
	require.NoError(t, err)
	lease, err := client.TimeToLive(t.Context(), clientv3.LeaseID(reply.Kvs[0].Lease))
	require.NoError(t, err)
	require.EqualValues(t, 5, lease.GrantedTTL)
}

// What nobody holds leaves no lease behind, that of a refusal neither.
func TestNoLeaseIsLeftBehind(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.NewEtcd(t, 1).URLs()...)
	b, r := open(t, client), request()
	acquire(t, b, r)
	for range 5 {
		_, err := b.Acquire(t.Context(), rival(r))
		require.ErrorIs(t, err, lock.ErrHeld)
	}
	longer := r
	longer.TTL = 2 * time.Minute
	require.NoError(t, b.Renew(t.Context(), longer))
	leases, err := client.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1)
	require.NoError(t, b.Release(t.Context(), longer))
	leases, err = client.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
	left, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, left.Count)
}

func TestNewNeedsAClient(t *testing.T) {
	t.Parallel()
	_, err := etcdlock.New(nil)
	require.ErrorContains(t, err, "the client is nil")
}
