// Package pgguard guards PostgreSQL with pgx: it raises fences in the database
// and runs transactions that write only under the fence in force.
//
// A [Guard] sits on a [pgxpool.Pool] and on the fence schema of package
// migrations. It implements [guard.Guard], so a locker raises every fence before
// the holder's first read. Writes then go through one of these doors, each of
// which takes the fences from the context and has the server check them in the
// round trip that it makes anyway:
//
//   - [Guard.InTx], [Guard.Begin] and [Guard.BeginTx] begin a fenced transaction
//     and enter its fences in the same round trip: one of its own, or with
//     [WithDeferredBegin] that of the first statement.
//   - [Guard.Exec], [Guard.Query], [Guard.QueryRow], [Guard.SendBatch] and
//     [Guard.CopyFrom] fence each call by itself: the DBTX of code that sqlc
//     generates.
//   - [Guard.Once] is InTx for an operation that must not be applied twice.
//   - [Enter] fences a transaction that the caller has begun.
//   - [UpdateRow] checks the weaker row rule.
//
// While a transaction of a fence is open, no later fence of that resource can be
// raised; once one has been raised, no transaction of the earlier fence can
// begin. The later holder therefore reads everything that earlier holders wrote,
// and nothing is written behind its back. Unguarded statements take no part in
// this: on the same pool, in psql, or on the connection that [pgx.Tx.Conn] hands
// out. The trigger that migrations.Protect writes stops those by accident.
//
// The texts of statements are looked at, so that none leaves the transaction of its
// fence, with the strings of standard_conforming_strings: a session in which that is
// off is refused, and so is one whose client_encoding has backslashes within
// characters (SJIS, SHIFT_JIS_2004, BIG5, GBK, GB18030, UHC, JOHAB). What a rewriter
// makes of a text is looked at too, and must not be a name. A prepared
// statement whose name begins with a command and a space, as "select x" does, is
// taken for that command: give none of COMMIT or CALL such a name.
//
// # Errors
//
// A refused fence is [guard.ErrStale] or [guard.ErrNotRaised], with the facts in
// [guard.StaleError] and [guard.NotRaisedError]; nothing was written, and the
// *pgconn.PgError is wrapped too. A call without a fence in its context is
// [guard.ErrNoFence]. [guard.ErrCommitUnknown] says that a reply was lost and the
// outcome could not be learned. [Retryable] tells which errors may go away when
// the transaction is run again.
//
// # Connection poolers
//
// Every call works through PgBouncer in transaction mode: all settings are local
// to a transaction, and a fence is entered in the transaction that it protects.
// Use [pgx.QueryExecModeExec] there, as for any other pgx code.
package pgguard
