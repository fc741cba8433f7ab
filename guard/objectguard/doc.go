// Package objectguard is the guard for objects in a store that writes on a condition:
// S3, Google Cloud Storage, Azure Blob Storage and those that speak like them, and, with
// [Dir], files of one host. The store itself is behind [Bucket], two methods of some
// thirty lines; the example Example_s3 has them for S3.
//
// An object store has no transaction over two objects, and a fence in one of them says
// nothing about another one at the time that is written: a look at the fence and then a
// write is the very history that fails. So the fence is in the object that it guards.
// [Guard.Raise] rewrites the object with the new fence in it, before the first read, and
// [Guard.Write], [Guard.Update] and [Guard.Delete] replace it on the condition that it
// is still as it was when their fence was seen in it. A raise in between makes that
// condition fail. This is the full rule, for each object by itself; several resources
// can share an object ([WithObject]), and then a write enters all fences of its context
// that are in it.
//
// The fence is in the bytes and not in the metadata. The ETag of S3 is a hash of the
// bytes alone: a raise that changed the metadata would not change it. For the same reason
// each write has a random mark, so that no two states of an object are ever equal.
// Readers without a fence use [Data], which takes all that off.
//
// # Large data
//
// A raise reads and writes the whole object. Put what is large under a name of its own,
// which is never used again, and guard the small object that names it: a manifest. A
// stale holder may then leave an object that nobody reads, and that is all.
//
// # Errors
//
// A call is refused with [guard.ErrStale] ([*guard.StaleError] names the fence in force,
// and since when, by the clock of its holder), [guard.ErrConflict], [guard.ErrNotRaised]
// or [guard.ErrNoFence]. When the reply to a write is lost the guard looks for it, for 5s
// at most and also after the end of the context, and repeats it if need be: it is done
// once at most. [guard.ErrCommitUnknown] says that even so it may have been done or not,
// since another writer of the same fence came in between, or the store does not answer.
// Acquire the lock again before you look at the data: what is still on its way is then
// refused. Any other error says that nothing was written.
//
// # What is not promised
//
// Order between two objects. Reads from a cache, a replica in another region, or an
// earlier version of an object. Objects whose store forgets them: no lifecycle rule may
// delete or restore one, as that forgets, or brings back, its fence. Writes that do not
// go through a guard. Progress while others change the object all the time: a raise
// gives up after 10s with [guard.ErrBlocked].
package objectguard
