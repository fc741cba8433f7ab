// Package redlock is the lock back end on several Redis masters that know nothing of
// each other: the Redlock algorithm (redis.io, "Distributed Locks with Redis"), with
// what it lacks, a token that grows.
//
// # How it works
//
// An acquisition asks all nodes in parallel for the lock and for their counter, and
// needs a majority. Then it proposes a token greater than all counters it heard of,
// and a majority has to promise it: each node does so only if the lock there is still
// this holder's and it has promised none as great for the resource since. Any two
// majorities share a node, so that two holders never get the same token, and a later
// one gets a greater. (Writing the token back without that comparison hands out the
// same one twice; the tests of this package show how.) It costs two round trips where
// lock/redislock has one. Renewal and release ask all nodes, and a majority decides.
// The validity of the lock counts from the start of the acquisition; package lock
// takes off the term for the drift of clocks.
//
// A minority of the nodes may be down, hang or lose its data. Nobody waits for it.
// A node that is new, or that has lost its data or was merely started again, gives no
// vote for a TTL, since it may have forgotten somebody's lock, and learns its counter
// from the others before that one counts. See [WithRestartDelay], also for nodes that
// write everything to disk before they answer. The very first acquisition waits for a
// TTL, too, and needs all nodes. If a majority loses its data at once, then the tokens
// may start again. All processes must name the same nodes; to replace one, give the
// new server the address of the old. Every node needs maxmemory-policy noeviction: an
// evicted lock is a forgotten one that nothing tells of.
//
// # What it does not give
//
// Martin Kleppmann ("How to do distributed locking") objects that Redlock is neither
// fish nor fowl: it assumes clocks and delays that are bounded, and loses exclusion
// where they are not. A holder that pauses past its TTL writes after the next one has
// begun, whatever the number of nodes. And it has no fencing token by which a store
// could refuse that write.
//
// The token here answers the last point only in part, since it still has to be
// checked. It is the fence in the store, raised before the first read and entered by
// each transaction (lock.WithGuards), that refuses the stale holder; then a broken
// clock costs a retry, and no data.
//
// With such a fence the safety of the data rests on the store and not on the lock, so
// that a single Redis is the better choice, with lock/redislock: half the round trips,
// waiters that are woken, and a counter that is repaired from the store after a loss.
// Take several nodes if the lock has to stay available while one of them fails and
// you do not want a failover that forgets, or if it protects something that knows no
// fence and one holder too many must be rare.
package redlock
