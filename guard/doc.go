// Package guard holds the vocabulary and the rules of fencing: what a token and
// a fence are, how a fence travels in a context, and which fence a store admits.
//
// A distributed lock alone does not stop a holder that paused past its lease from
// writing afterwards. A fence does, when the store itself checks it: every
// acquisition raises a fence in the store before its first read, and every
// transaction enters it before its first statement. The two rules, [Record.Raise]
// and [Record.Enter], are written here once; the guards of real stores (packages
// pgguard, sqlguard, gormguard, redisguard, objectguard) carry them out where the data
// is, and [Memory] is their reference implementation.
//
// The idea of the token is from Martin Kleppmann, "How to do distributed locking"
// (2016); that it must be raised before the first read, not only checked at the
// write, is this project's addition.
package guard
