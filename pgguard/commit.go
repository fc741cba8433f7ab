package pgguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/go-fencing/fencing/guard"
)

// settleBound bounds how long the outcome of a commit is asked for. It is longer
// than the default idle timeout, so that a COMMIT that never arrived, on a
// connection whose end the server has not noticed, is known to be rolled back.
const settleBound = 7 * time.Second

// A receipt identifies a transaction afterwards. The times are of pgx's own type,
// which costs the least to scan and is good enough to be sent back.
type receipt struct {
	xid     uint64             // pg_current_xact_id
	started pgtype.Timestamptz // transaction_timestamp
	boot    pgtype.Timestamptz // pg_postmaster_start_time
}

func (r *receipt) scan(row pgx.Row) error { return row.Scan(nil, &r.xid, &r.started, &r.boot) }

var errRolledBack = errors.New("the transaction was rolled back, nothing was written")

// settle finds out what became of a transaction whose COMMIT was sent and has not
// been answered, but for err.
func (g *Guard) settle(ctx context.Context, r receipt, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBound)
	defer cancel()
	switch committed, askErr := g.outcome(ctx, r); {
	case askErr != nil:
		return fmt.Errorf("pgguard: commit of transaction %d: %w: %w; asked afterwards: %w; read the data before you write it again, or use Once", r.xid, guard.ErrCommitUnknown, err, askErr)
	case committed:
		return nil
	default:
		return fmt.Errorf("pgguard: commit: %w: %w", errRolledBack, err)
	}
}

// answered reports whether err is the server's own word on a statement. A fatal
// error and one of class 08 (connection exception) are not: poolers send them in
// the server's name when they have lost the server.
func answered(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	severity := pgErr.SeverityUnlocalized
	if severity == "" {
		severity = pgErr.Severity
	}
	return severity == "ERROR" && pgErr.Code[:min(2, len(pgErr.Code))] != "08" && pgErr.Code != "40003"
}

// outcomeSQL asks for the fate of transaction $1, and whether the answer
// "committed" can be about that transaction and no other.
//
// A transaction id is unique only as long as the server does not crash: the ids
// that it handed out shortly before are not on disk, and it hands them out again.
// So "committed" may be the fate of a later transaction of the same id, whereas
// "aborted", and an id that lies in the future, always mean that ours is not
// committed: had it been, recovery would have found its commit, and the id would
// not have been free. What shows that there was no crash is any server process
// that is older than our transaction, because a crash ends them all. Those of
// the role's own connections are visible in pg_stat_activity, which is in memory
// and made anew after a crash. That it is the same server, and not a standby that
// was promoted while we had old connections to it, is shown by the postmaster's
// start. Both compare readings of one clock, the server's; setting it back between
// the transaction and the crash would defeat this.
//
// In recovery nothing is said: there an id in the future may only be one that has
// not arrived yet.
const outcomeSQL = `
select case when not pg_is_in_recovery() then pg_xact_status($1::text::xid8) end,
       pg_postmaster_start_time() = $3, exists (select from pg_stat_activity where backend_start < $2)`

// outcome reports whether the transaction was committed, or why that could not be
// learned. It waits while the transaction is in progress, and for a server that
// is restarting.
func (g *Guard) outcome(ctx context.Context, r receipt) (committed bool, err error) {
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		var status *string
		var same, older bool // server, session
		err := g.pool.QueryRow(ctx, outcomeSQL, strconv.FormatUint(r.xid, 10), r.started, r.boot).Scan(&status, &same, &older)
		pgErr, isPg := errors.AsType[*pgconn.PgError](err)
		switch {
		case isPg && pgErr.Code == "22023": // the id is in the future
			return false, nil
		case err != nil && ctx.Err() != nil:
			return false, err
		case err != nil: // the server may be restarting
		case status == nil:
			return false, errors.New("the server no longer knows that transaction, or is a standby")
		case *status == "aborted":
			return false, nil
		case *status == "committed" && same && older:
			return true, nil
		case *status == "committed" && same:
			return false, errors.New("no session that this role may see is older than the transaction, so the server may have crashed since, and have given its id to another one; " +
				"more connections in the pool, or the role pg_read_all_stats, would tell")
		case *status == "committed":
			return false, errors.New("the server has restarted since, and may have given the transaction's id to another one")
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New("the transaction is still in progress")
			}
			return false, err
		case <-time.After(wait):
		}
	}
}
