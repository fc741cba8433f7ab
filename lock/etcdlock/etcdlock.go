// Package etcdlock is the lock back end on etcd 3.4 or later. It is a module of its
// own, because the client raises shared dependencies.
//
// The lock of a resource is a key that exists while it is held, on a lease of its
// own. Its token is the revision that created the key, which etcd's consensus
// makes grow across all resources and failovers; where that is not enough (etcd
// came back from a snapshot, or the resource was locked with another back end
// before), an offset that is kept in etcd for good is added to it. [IsOwner] fences
// writes to etcd itself.
//
// Acquire takes three round trips, or two if the lock is held by another, which
// then write nothing; Renew and Release take two. A release wakes who waits: with
// lock.WithFair the one whose turn it is, otherwise one waiter of each process.
//
// Leases of etcd last whole seconds, and at least one and a half election timeouts:
// 2s by default. A TTL is rounded up to that, so that no lock becomes free before
// its holder gives it up; the lock of a holder that died is free that much later.
// When the members elect a leader, all leases begin anew.
//
// Give the client the endpoints of all members: a call that one leaves without an
// answer is repeated at the next, after a third of its time or 3s. All calls end
// with their context.
package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// cleanUpTimeout bounds what is done on a context that may be dead already.
const cleanUpTimeout = 2 * time.Second

// A Backend keeps locks in etcd. It is safe for concurrent use, and has no state
// of its own.
type Backend struct{ client *clientv3.Client }

var (
	_ lock.Backend     = (*Backend)(nil)
	_ lock.Waiter      = (*Backend)(nil)
	_ lock.FairBackend = (*Backend)(nil)
	_ lock.Inspector   = (*Backend)(nil)
	_ lock.Bounded     = (*Backend)(nil)
)

// New returns a back end on client, which it never closes. It does not talk to etcd.
func New(client *clientv3.Client) (*Backend, error) {
	if client == nil {
		return nil, errors.New("etcdlock: the client is nil")
	}
	return &Backend{client: client}, nil
}

// Bounded implements [lock.Bounded]: gRPC gives up a call at the end of its context.
func (b *Backend) Bounded() bool { return true }

// Acquire implements [lock.Backend]. Beyond the errors named there it returns
// sequencer.ErrJump if r.After is implausibly far ahead of etcd's revision, and
// sequencer.ErrExhausted at the end of the integers.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	s, err := b.look(ctx, r.Resource)
	switch {
	case err != nil:
		return 0, failed(ctx, "acquire", r.Resource, err)
	case !s.held():
		s, err = b.create(ctx, r, nil)
	case s.heldBy(r.Nonce):
		err = b.prolong(ctx, r)
	}
	switch {
	case err != nil:
		return 0, failed(ctx, "acquire", r.Resource, err)
	case !s.heldBy(r.Nonce):
		return 0, &lock.HeldError{Resource: r.Resource, Holder: s.holder, Remaining: b.remaining(ctx, s)}
	}
	token, err := b.above(ctx, r, s)
	return token, failed(ctx, "acquire", r.Resource, err)
}

// create makes the lock's keys if they do not exist and if what else is asked holds,
// and returns what exists then.
func (b *Backend) create(ctx context.Context, r lock.Request, also []clientv3.Cmp, then ...clientv3.Op) (state, error) {
	id := leaseID(r)
	if err := b.grant(ctx, id, r.TTL); err != nil {
		return state{}, err
	}
	reply, err := try(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).
			If(append(also, clientv3.Compare(clientv3.CreateRevision(lockKey(r.Resource)), "=", 0))...).
			Then(slices.Concat(puts(r, id), then, reads(r.Resource))...).
			Else(reads(r.Resource)...).
			Commit()
	})
	if err != nil {
		return state{}, err
	}
	s, err := parse(r.Resource, reply)
	if err == nil && !s.heldBy(r.Nonce) { // another was faster
		b.spend(ctx, id)
	}
	return s, err
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, r lock.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return failed(ctx, "renew", r.Resource, b.prolong(ctx, r))
}

// prolong gives the lock another TTL if r.Nonce holds it.
func (b *Backend) prolong(ctx context.Context, r lock.Request) error {
	id := leaseID(r)
	err := b.keepAlive(ctx, id)
	if err != nil && !isNoLease(err) {
		return err
	}
	s, lookErr := b.look(ctx, r.Resource)
	switch {
	case lookErr != nil:
		return lookErr
	case !s.heldBy(r.Nonce):
		return lock.ErrLost
	case err == nil && s.lease == id:
		return nil
	}
	// It is held on the lease of another TTL.
	return b.move(ctx, r, s)
}

// move attaches a lock that is held to a lease of another TTL.
func (b *Backend) move(ctx context.Context, r lock.Request, s state) error {
	id := leaseID(r)
	if err := b.grant(ctx, id, r.TTL); err != nil {
		return err
	}
	reply, err := try(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).
			If(clientv3.Compare(clientv3.Value(lockKey(r.Resource)), "=", r.Nonce)).
			Then(puts(r, id)...).
			Commit()
	})
	if err != nil {
		return err
	}
	if !reply.Succeeded {
		b.spend(ctx, id)
		return lock.ErrLost
	}
	b.spend(ctx, s.lease)
	return nil
}

// Release implements [lock.Backend]. It revokes the lease, which nobody else's lock
// is on, and so can free no successor's, however late or often it arrives.
func (b *Backend) Release(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	s, err := b.look(ctx, r.Resource)
	if err != nil {
		return failed(ctx, "release", r.Resource, err)
	}
	if !s.heldBy(r.Nonce) {
		// Or an Acquire that is under way would still be granted.
		if err := b.revoke(ctx, leaseID(r)); err != nil && !isNoLease(err) {
			return failed(ctx, "release", r.Resource, err)
		}
		return failed(ctx, "release", r.Resource, lock.ErrLost)
	}
	if err = b.revoke(ctx, s.lease); isNoLease(err) {
		return nil // it was held a moment ago; the reply to an earlier try was lost
	}
	return failed(ctx, "release", r.Resource, err)
}

// Inspect implements [lock.Inspector].
func (b *Backend) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	h := lock.Holding{Resource: resource}
	if err := guard.ValidateResource(resource); err != nil {
		return h, err
	}
	s, err := b.look(ctx, resource)
	if err != nil || !s.held() {
		return h, failed(ctx, "inspect", resource, err)
	}
	h.Token, err = s.token()
	h.Holder, h.Members, h.Remaining = s.holder, 1, b.remaining(ctx, s)
	return h, failed(ctx, "inspect", resource, err)
}

// grant makes the lease of an acquisition, or has it begin anew if an earlier
// attempt made it.
func (b *Backend) grant(ctx context.Context, id clientv3.LeaseID, ttl time.Duration) error {
	// Not Client.Grant, which leaves the choice of the id to the server.
	grants := clientv3.RetryLeaseClient(b.client)
	_, err := try(ctx, func(ctx context.Context) (*etcdserverpb.LeaseGrantResponse, error) {
		reply, err := grants.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: int64(id), TTL: seconds(ttl)})
		return reply, clientv3.ContextError(ctx, err)
	})
	if errors.Is(err, rpctypes.ErrLeaseExist) {
		return b.keepAlive(ctx, id)
	}
	return err
}

// keepAlive is one question and its answer. (Client.KeepAliveOnce asks again without a
// pause as long as no member can be reached.)
func (b *Backend) keepAlive(ctx context.Context, id clientv3.LeaseID) error {
	leases := clientv3.RetryLeaseClient(b.client)
	_, err := try(ctx, func(ctx context.Context) (*etcdserverpb.LeaseKeepAliveResponse, error) {
		ctx, cancel := context.WithCancel(ctx) // ends the stream
		defer cancel()
		stream, err := leases.LeaseKeepAlive(ctx)
		if err != nil {
			return nil, clientv3.ContextError(ctx, err)
		}
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			return nil, clientv3.ContextError(ctx, err)
		}
		reply, err := stream.Recv()
		if err == nil && reply.TTL <= 0 {
			err = rpctypes.ErrLeaseNotFound
		}
		return reply, clientv3.ContextError(ctx, err)
	})
	return err
}

func (b *Backend) revoke(ctx context.Context, id clientv3.LeaseID) error {
	_, err := try(ctx, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) { return b.client.Revoke(ctx, id) })
	return err
}

// spend revokes a lease that must not hold a lock any more. Where that fails, it
// ends with its TTL.
func (b *Backend) spend(ctx context.Context, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	_ = b.revoke(ctx, id)
}

// remaining is until the lock ends without renewal, 0 if that cannot be learned.
func (b *Backend) remaining(ctx context.Context, s state) time.Duration {
	reply, err := try(ctx, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return b.client.TimeToLive(ctx, s.lease)
	})
	if err != nil {
		return 0
	}
	return time.Duration(max(reply.TTL, 0)) * time.Second // -1: it has just ended
}

func isNoLease(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// failed says what failed, and what its reader can do about it.
func failed(ctx context.Context, what, resource string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		err = fmt.Errorf("grant this user read and write on the keys that begin with %q: %w", Prefix, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		err = fmt.Errorf("etcd has reached its quota; compact and defragment it, then disarm the alarm: %w", err)
	}
	return fmt.Errorf("etcdlock: %s %q: %w", what, resource, err)
}
