// Package zklock is the lock back end on ZooKeeper 3.5.3 or later.
//
// The lock of a resource is an ephemeral sequential node: who has the first of them
// holds it. Its token is the zxid that created the node (czxid), which ZooKeeper's
// consensus makes grow across all resources and failovers; where that is not enough (the
// ensemble was built anew, or the resource was locked with another back end before), an
// offset that is kept in ZooKeeper for good is added to it. With lock.WithFair the nodes
// are a queue, also across processes. A release wakes one waiter, not all.
//
// # How long a lock lives
//
// A node lives as long as the session of the back end that created it. The client keeps
// the session alive by itself, also when nobody renews a lock any more; so the back end
// deletes the node when its TTL is over without a renewal. If the process has died, is
// paused, or is cut off from ZooKeeper, the end of the session frees its locks:
// [WithSessionTimeout] after its last sign of life, and so later than the TTL.
//
// That the session does not end before a TTL is over, while its holder believes to have
// the lock, needs a session timeout that is a third longer; a TTL that is too long for
// the session is refused. ZooKeeper grants sessions between 2 and 20 of its ticks of
// 2s, unless it is configured otherwise: with its defaults and those of this package,
// TTLs up to 30s. If it grants a longer session than was asked for, a dead process's
// locks live that much longer. There is one exception: when the server that this client
// is connected to fails within half a tick of a renewal, and the client reaches no other,
// the lock may end up to half a tick before its TTL, or a ninth of it and half a tick
// before if it was not renewed yet. As ever it is the fence that keeps writes in order.
//
// Renewals are writes, which the leader carries out only while the session lives. A
// holder whose session has expired is told so by its next renewal, or by its own
// monotonic clock at the end of the TTL, whichever comes first.
//
// # What may happen to a reply
//
// A node has the hash of its nonce in its name. When the creation of a node is not
// answered, the next call with that nonce finds it, and its token is the same; and if
// there is no other call, the back end deletes it at the end of the TTL. A release
// deletes the nodes of its own nonce only. In ZooKeeper a session's calls are carried out
// in order, and those that an earlier connection left behind are refused, so that none
// takes effect after the release.
//
// A server that does not answer is left for the next one after a third of the call's
// time, at least 250ms (less for a session timeout below 3s) and at most 3s. Every call
// ends with its context, or after 10s.
//
// Uncontended, Acquire takes three round trips (a look, the creation, and two reads at
// once) and one more for a resource that has no directory yet; a refusal two that write
// nothing; Renew and Release one.
//
// # What it does not do
//
// It has no Join: a node belongs to one session. It connects by itself, because the client
// package neither tells the timeout of a session, nor bounds how long it waits for a server
// that hangs. Once somebody waits it has a second connection, for the watches. After an ensemble was built anew or restored from a
// snapshot, restart the processes: a client refuses servers that know less than it has
// seen.
package zklock
