// Package redisguard is the guard for data that lives in Redis itself, through a
// go-redis client for a single server, Sentinel or Cluster: counters, sessions,
// documents, whatever a holder of a lock writes there.
//
// [Guard.Raise] makes a fence the current one, before the first read; give the guard to
// the locker with lock.WithGuards. [Guard.Set], [Guard.HSet], [Guard.Del] and, for
// everything else, [Guard.Run] with a script then write under the fences of their
// context. Check and write are one script, so that nobody gets in between, in one round
// trip as without a fence. A refused write has written nothing. What a write rests on is
// read after the raise, from the master.
//
// A fence is a hash, <prefix>:raised:{tag}, one per resource and without a TTL. It is in
// the Cluster slot of the data, and so on the same server: the keys of a write must have
// the hash tag of a resource whose fence the context carries, {inventory:sku-42}:stock
// for inventory:sku-42, or else they are refused, on a single server too. [Guard.Key]
// makes such names, and [WithTag] other tags. All fences of the context with that tag
// are entered, and there is one at least; which of several resources with one tag a key
// belongs to is for you to know. Fences of other tags have nothing to do with that
// write, as there is no transaction over two slots.
//
// # Errors
//
// A write is refused with [guard.ErrStale] ([*guard.StaleError] names the fence in
// force), [guard.ErrConflict], [guard.ErrNotRaised] or [guard.ErrNoFence]; with
// [guard.ErrUnguarded] if its keys are in no one slot, or are a fence. After
// [guard.ErrCommitUnknown] it may have been done: its reply was lost. go-redis repeats
// calls by itself, but not these, as their first attempt may arrive when the second has
// long been answered. Acquire the lock again before you look at the data: what is still
// on its way is then of an earlier fence, and is refused. Any other error says that
// nothing was written, except for that of a script, which Redis does not undo.
//
// # What Redis can promise
//
// Of one resource, writes are done in the order in which their fences were raised: none
// of an earlier fence after the raise of a later one. That is as durable as the Redis.
// Replication is asynchronous, and a file is written now and then, so a failover or a
// crash may lose the last writes that were acknowledged. What is lost is lost from the
// end, fence and data alike, since both go one way, in one order: a write is never kept
// without the raise before it. What remains is a history that is in order. But when the
// raise of B is lost, with all that B wrote, the fence of A before it is in force again;
// A may then write, and B is told [guard.ErrNotRaised].
//
// So there is no option for WAIT here: it makes such a loss rarer, and the order does
// not depend on it. What must not be lost belongs in a store that does not lose, or
// needs appendfsync always and min-replicas-to-write, and then, too, an old master that
// is cut off takes writes that are lost later.
//
// What does break the order is a fence that is lost alone. Do not delete it, and do not
// let it be evicted: Raise refuses a server whose maxmemory-policy is for all keys
// ([ErrEvicts]), if its user may call INFO. While a Cluster moves a slot, key by key,
// writes may be refused with TRYAGAIN, and the loss of the node that takes it may lose a
// fence alone. A write without a fence is refused, but the next raise, of any token, is
// not, nor is an old one that is repeated after its holder has read, as lock.Join in
// another process does. Servers that merge the writes of several masters have no one
// order and are no place for this. Nor does it stop who writes without the guard.
package redisguard
