package etcdlock

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A place in the queue of a resource.
type place struct {
	key     string // the last part of it
	created int64  // revision
}

// AcquireInTurn implements [lock.FairBackend]. Acquire takes no notice of the
// queue: either all processes use a resource with lock.WithFair, or none. Patience is
// rounded up as a TTL is.
func (b *Backend) AcquireInTurn(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	if patience <= 0 {
		return 0, fmt.Errorf("etcdlock: acquire %q: patience %v is not above 0: %w", r.Resource, patience, guard.ErrInvalid)
	}
	s, err := b.look(ctx, r.Resource, first(r.Resource), own(r))
	switch {
	case err != nil:
	case s.heldBy(r.Nonce):
		err = b.prolong(ctx, r)
	case !s.held() && len(s.queue) == 0:
		empty := clientv3.Compare(clientv3.CreateRevision(queuePrefix(r.Resource)), "=", 0).WithPrefix()
		s, err = b.create(ctx, r, []clientv3.Cmp{empty})
	}
	if err == nil && !s.heldBy(r.Nonce) {
		if s, err = b.queue(ctx, r, s, patience); err == nil && !s.held() && s.turn(r) {
			s, err = b.createInTurn(ctx, r, s.place(r))
		}
	}
	switch {
	case err != nil:
		return 0, failed(ctx, "acquire", r.Resource, err)
	case !s.held():
		return 0, &lock.HeldError{Resource: r.Resource, Holder: "an earlier waiter", Remaining: patience}
	case !s.heldBy(r.Nonce):
		return 0, &lock.HeldError{Resource: r.Resource, Holder: s.holder, Remaining: b.remaining(ctx, s)}
	}
	token, err := b.above(ctx, r, s)
	return token, failed(ctx, "acquire", r.Resource, err)
}

// queue keeps r's place in the queue for another while, or takes the last one.
func (b *Backend) queue(ctx context.Context, r lock.Request, s state, patience time.Duration) (state, error) {
	id := queueLeaseID(r)
	if s.place(r) != 0 {
		err := b.keepAlive(ctx, id)
		if !isNoLease(err) {
			return s, err
		}
	}
	if err := b.grant(ctx, id, patience); err != nil {
		return s, err
	}
	key := queueKey(r.Resource, r.Nonce)
	also := append(reads(r.Resource), first(r.Resource), own(r))
	reply, err := try(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(append([]clientv3.Op{clientv3.OpPut(key, r.Holder, clientv3.WithLease(id))}, also...)...).
			Else(also...).
			Commit()
	})
	if err != nil {
		return s, err
	}
	return parse(r.Resource, reply)
}

// createInTurn makes the lock's keys in exchange for the place at the head of the
// queue. Nobody can have come before it since it was seen there.
func (b *Backend) createInTurn(ctx context.Context, r lock.Request, created int64) (state, error) {
	key := queueKey(r.Resource, r.Nonce)
	return b.create(ctx, r,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", created)},
		clientv3.OpDelete(key))
}

// Withdraw implements [lock.FairBackend].
func (b *Backend) Withdraw(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	if err := b.revoke(ctx, queueLeaseID(r)); !isNoLease(err) {
		return failed(ctx, "withdraw", r.Resource, err)
	}
	return nil
}

// first reads the head of the queue.
func first(resource string) clientv3.Op {
	return clientv3.OpGet(queuePrefix(resource), clientv3.WithFirstCreate()...)
}

// own reads r's place.
func own(r lock.Request) clientv3.Op { return clientv3.OpGet(queueKey(r.Resource, r.Nonce)) }

// place is the create revision of r's place, 0 if it has none.
func (s state) place(r lock.Request) int64 {
	i := slices.IndexFunc(s.queue, func(p place) bool { return p.key == url.PathEscape(r.Nonce) })
	if i < 0 {
		return 0
	}
	return s.queue[i].created
}

// turn reports whether r is at the head of the queue.
func (s state) turn(r lock.Request) bool {
	mine := s.place(r)
	return mine != 0 && !slices.ContainsFunc(s.queue, func(p place) bool { return p.created < mine })
}

// ahead returns the key whose end brings r forward: that of the contender before it,
// and no other's, so that a release wakes one, with a revision at which it was there; or
// the lock's, and 0, if nobody is before r or r does not queue.
func (b *Backend) ahead(ctx context.Context, r lock.Request) (key string, seen int64, err error) {
	if r.Nonce == "" {
		return lockKey(r.Resource), 0, nil
	}
	reply, err := try(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.client.Get(ctx, queueKey(r.Resource, r.Nonce))
	})
	if err != nil || len(reply.Kvs) == 0 {
		return lockKey(r.Resource), 0, err
	}
	before := clientv3.WithMaxCreateRev(reply.Kvs[0].CreateRevision - 1)
	reply, err = try(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.client.Get(ctx, queuePrefix(r.Resource), append(clientv3.WithLastCreate(), before)...)
	})
	if err != nil || len(reply.Kvs) == 0 {
		return lockKey(r.Resource), 0, err
	}
	return string(reply.Kvs[0].Key), reply.Header.Revision, nil
}
