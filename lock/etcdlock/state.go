package etcdlock

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

// A state is what etcd's keys say of a resource at one revision.
type state struct {
	nonce, holder string
	created       int64 // revision of the lock key; 0: nobody holds it
	lease         clientv3.LeaseID
	offset        int64
	offsetChanged int64 // revision; 0: there is none
	queue         []place
}

func (s state) held() bool { return s.created != 0 }

func (s state) heldBy(nonce string) bool { return s.held() && s.nonce == nonce }

// token is the create revision, the offset added.
func (s state) token() (guard.Token, error) {
	if s.offset > math.MaxInt64-s.created {
		return 0, fmt.Errorf("revision %d with offset %d; an operator must rebase the resource: %w", s.created, s.offset, sequencer.ErrExhausted)
	}
	return guard.Token(s.created + s.offset), nil
}

// look reads the state, and what else is to be read with it.
func (b *Backend) look(ctx context.Context, resource string, also ...clientv3.Op) (state, error) {
	reply, err := try(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).Then(append(reads(resource), also...)...).Commit()
	})
	if err != nil {
		return state{}, err
	}
	return parse(resource, reply)
}

// reads are the last operations of a transaction whose reply [parse] reads.
func reads(resource string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(lockKey(resource)),
		clientv3.OpGet(holderKey(resource)),
		clientv3.OpGet(offsetKey(resource)),
	}
}

// puts make the lock's keys, or move them to another lease.
func puts(r lock.Request, id clientv3.LeaseID) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpPut(lockKey(r.Resource), r.Nonce, clientv3.WithLease(id)),
		clientv3.OpPut(holderKey(r.Resource), r.Holder, clientv3.WithLease(id)),
	}
}

func parse(resource string, reply *clientv3.TxnResponse) (s state, err error) {
	for _, r := range reply.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			switch string(kv.Key) {
			case lockKey(resource):
				s.nonce, s.created, s.lease = string(kv.Value), kv.CreateRevision, clientv3.LeaseID(kv.Lease)
			case holderKey(resource):
				s.holder = string(kv.Value)
			case offsetKey(resource):
				s.offsetChanged = kv.ModRevision
				s.offset, err = strconv.ParseInt(string(kv.Value), 10, 64)
				if err != nil || s.offset < 0 {
					return s, fmt.Errorf("key %q is %.40q and not a number: %w", kv.Key, kv.Value, guard.ErrInvalid)
				}
			default:
				if nonce, ok := strings.CutPrefix(string(kv.Key), queuePrefix(resource)); ok {
					s.queue = append(s.queue, place{nonce, kv.CreateRevision})
				}
			}
		}
	}
	return s, nil
}

// above returns the token of the lock that r.Nonce holds. If it is not greater
// than r.After, the offset grows so that it is. Nobody but the holder lets the
// offset grow, so that no other holder's token changes.
func (b *Backend) above(ctx context.Context, r lock.Request, s state) (guard.Token, error) {
	token, err := s.token()
	switch {
	case err != nil:
		return 0, err
	case token > r.After:
		return token, nil
	case r.After == math.MaxInt64:
		return 0, fmt.Errorf("a token above %d is asked for; an operator must run \"fencectl rebase\": %w", r.After, sequencer.ErrExhausted)
	case r.After-token > sequencer.DefaultMaxJump:
		return 0, fmt.Errorf("a token above %d is asked for where etcd is at %d; the fence in the store is probably poisoned, an operator must run \"fencectl rebase\": %w", r.After, token, sequencer.ErrJump)
	}
	s.offset = int64(r.After) + 1 - s.created
	reply, err := try(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).
			If(IsOwner(guard.Fence{Resource: r.Resource, Nonce: r.Nonce}),
				clientv3.Compare(clientv3.CreateRevision(lockKey(r.Resource)), "=", s.created),
				clientv3.Compare(clientv3.ModRevision(offsetKey(r.Resource)), "=", s.offsetChanged)).
			Then(clientv3.OpPut(offsetKey(r.Resource), strconv.FormatInt(s.offset, 10))).
			Else(reads(r.Resource)...).
			Commit()
	})
	if err != nil {
		return 0, err
	}
	if reply.Succeeded {
		return s.token()
	}
	// The lock ended; or this, or another call of the same nonce, was carried out
	// before and its reply is lost.
	now, err := parse(r.Resource, reply)
	if err != nil {
		return 0, err
	}
	if token, err = now.token(); err == nil && (!now.heldBy(r.Nonce) || now.created != s.created || token <= r.After) {
		err = fmt.Errorf("while its token was made greater than %d: %w", r.After, lock.ErrLost)
	}
	if err != nil {
		return 0, err
	}
	return token, nil
}
