// Package model explores the protocol of fencing exhaustively: every interleaving of a
// few clients with everything that may go wrong between them, a Redis that forgets and a
// Postgres that decides. It is a test that reads like the protocol; the shipped rules
// ([guard.Record.Raise], [guard.Record.Enter], [guard.AdmitRow], [sequencer.Advance])
// are called and not copied.
//
// A client acquires, raises, reads a counter, and in a transaction enters its fence and
// writes what it has read plus one. The read stands before the transaction and not in it,
// because that leaves others more room; a read after enter is one that came late.
//
// What may happen at any time: a lease ends; the counter of tokens goes back to any earlier
// value; the reply of an acquire, a raise or a commit gets lost; a raise that its client has
// given up arrives later, as does the whole transaction or only its commit; a client
// restarts without its memory, while its transaction ends or goes on.
//
// What must hold in every state: the counter has as many increments as there were commits
// (no lost update); nothing commits under an earlier raise after something has under a
// later one; and a client that comes new gets to its commit with at most one repair, once
// the leases and the open transactions have ended.
//
// The bounds are [Bounds]: clients, acquisitions of each, and the greatest token that may
// be drawn. At most one raise and one transaction of a client that has given up are under
// way at a time. Within the bounds the result is a proof; beyond them it is none. Real
// time, several resources and the isolation levels of Postgres are not in the model.
//
// [Broken] has what looks like it would do and does not. Each fails, with the shortest
// history that shows it. [Quorum] is the same for the token of lock/redlock.
package model
