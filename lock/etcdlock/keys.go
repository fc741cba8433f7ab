package etcdlock

import (
	"crypto/sha256"
	"encoding/binary"
	"net/url"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// Prefix is what every key of this package begins with. A role of a service needs
// the right to read and write them. For a prefix before it, wrap the client's KV,
// Watcher and Lease by package go.etcd.io/etcd/client/v3/namespace.
const Prefix = "fencing/"

// The keys of a resource. Lock and holder live and die together, by one lease.
func lockKey(resource string) string   { return Prefix + "lock/" + url.PathEscape(resource) }   // value: the nonce
func holderKey(resource string) string { return Prefix + "holder/" + url.PathEscape(resource) } // value: the holder
func offsetKey(resource string) string { return Prefix + "offset/" + url.PathEscape(resource) } // value: token - create revision

// A contender in the queue of a resource has a key there, until it gets the lock or its
// patience ends. Their create revisions are their order.
func queuePrefix(resource string) string { return Prefix + "queue/" + url.PathEscape(resource) + "/" }

func queueKey(resource, nonce string) string { return queuePrefix(resource) + url.PathEscape(nonce) }

// IsOwner is true in a transaction of etcd while the lock of f.Resource is held
// under f: what the transaction writes is then fenced, in etcd itself.
//
//	client.Txn(ctx).If(etcdlock.IsOwner(f)).Then(clientv3.OpPut(key, value)).Commit()
//
// It compares the nonce, since a token is only as great as the create revision of
// the key (see [Backend]), and a locker draws a new nonce for every acquisition.
func IsOwner(f guard.Fence) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(lockKey(f.Resource)), "=", f.Nonce)
}

// leaseID is the lease of an acquisition. That it follows from the request lets
// any process find it without a read, and lets a release spend it: an Acquire of
// the same nonce that comes late finds no lease for its lock, unless its grant is late
// as well: then the lock stands until its TTL is over. A lease keeps the
// TTL that it was granted with, so another TTL is another lease.
func leaseID(r lock.Request) clientv3.LeaseID {
	return hash(r.Resource, r.Nonce, strconv.FormatInt(seconds(r.TTL), 10))
}

// queueLeaseID is the lease of a contender's place in the queue.
func queueLeaseID(r lock.Request) clientv3.LeaseID { return hash(r.Resource, r.Nonce, "queue") }

func hash(parts ...string) clientv3.LeaseID {
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0}) // neither names nor nonces have it
	}
	id := binary.BigEndian.Uint64(h.Sum(nil)) >> 1
	return clientv3.LeaseID(max(id, 1)) // 0 means none
}

// seconds rounds up: etcd must not free a lock before the holder's own deadline.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }
