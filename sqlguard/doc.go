// Package sqlguard guards PostgreSQL, MySQL, MariaDB and SQLite through
// database/sql: it raises fences in the database and runs transactions that write
// only under the fence in force. It needs no driver of its own; for pgx without
// database/sql there is package pgguard.
//
// A [Guard] sits on a *sql.DB and on the fence schema of package migrations. It
// implements [guard.Guard], so a locker raises every fence before the holder's
// first read. There are three ways to write under a fence:
//
//   - [Guard.InTx] and [Guard.BeginTx] begin a transaction and enter every fence
//     of the context. [Guard.Commit] ends the latter.
//   - [Wrap] does that below database/sql. The *sql.DB that it leads to fences
//     every statement and transaction by itself: the code of sqlx, bun, ent, sqlc
//     or GORM on it does not change.
//   - [Enter] fences a transaction that the caller has begun.
//
// While a transaction of a fence is open, no later fence of that resource can be
// raised; once one has been raised, no transaction of the earlier fence can begin.
//
// # The databases
//
// PostgreSQL: the functions of the schema "fencing" do the work, as for pgguard
// and for clients in other languages; all of them mix.
//
// MySQL and MariaDB: a raise locks the row of the fence for itself, and to enter
// is to share that lock. A plain SELECT would not do at REPEATABLE READ, the
// default there: it reads the fence of before. Statements that commit implicitly,
// such as ALTER TABLE or TRUNCATE, give the fence up: [Wrap] refuses them in a
// fenced transaction, [Guard.InTx] finds out when it is too late. After a deadlock the
// transaction is gone as well, as in SQLite after INSERT OR ROLLBACK, and a function
// that goes on writes without a fence: [Wrap] prevents that, InTx only reports it.
// Leave autocommit at 1: where it is 0 InTx cannot find out, and commits nothing.
// Tables must be InnoDB. The table of fences is that of the connection's database:
// never change that by USE on a connection of the pool.
//
// SQLite: there is one writer at a time, so a raise and every fenced transaction
// take the write lock first. Reads of others go on in WAL mode.
//
// # Errors
//
// A refused fence is [guard.ErrStale] or [guard.ErrNotRaised], with the facts in
// [guard.StaleError] and [guard.NotRaisedError]; nothing was written. A call
// without a fence in its context is [guard.ErrNoFence]. [guard.ErrCommitUnknown]
// says that the reply to a commit was lost. [Retryable] tells which errors may go
// away when the transaction is run again.
package sqlguard
