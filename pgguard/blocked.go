package pgguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/guard"
)

// lookBound bounds the search for the backend that blocked a raise, whose context may
// have ended.
const lookBound = time.Second

// BlockedError says which backend kept a raise from the gate of its resource. It
// is [guard.ErrBlocked], and wraps the server's or the context's error. Of
// several backends it names the one with the oldest transaction. Fields that the
// role may not see, or that were gone by the time, are zero.
type BlockedError struct {
	Resource    string
	Waited      time.Duration // how long the raise took to give up
	PID         int32         // server process of the transaction in the way
	Application string        // its application_name
	State       string        // its state in pg_stat_activity: "active", "idle in transaction", ...
	Since       time.Time     // when its transaction began, by the server's clock
	cause       error
}

func (e *BlockedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pgguard: raise %q: blocked for %v by ", e.Resource, e.Waited.Round(time.Millisecond))
	if e.PID == 0 {
		b.WriteString("a transaction that is no longer there")
	} else {
		fmt.Fprintf(&b, "backend %d", e.PID)
		if e.Application != "" {
			fmt.Fprintf(&b, " of application %q", e.Application)
		}
		if e.State != "" {
			fmt.Fprintf(&b, ", %s", e.State)
		}
		if !e.Since.IsZero() {
			fmt.Fprintf(&b, ", in a transaction of %v since %s", max(time.Since(e.Since), 0).Round(time.Millisecond), e.Since.UTC().Format(time.RFC3339))
		}
	}
	outcome := "the fence was not raised"
	if !answered(e.cause) { // the request to cancel may come too late
		outcome = "the fence may still be raised"
	}
	fmt.Fprintf(&b, "; %s, try again or end that transaction: %v", outcome, e.cause)
	return b.String()
}

// Is reports whether target is [guard.ErrBlocked].
func (e *BlockedError) Is(target error) bool { return target == guard.ErrBlocked }

// Unwrap returns the error of the server or of the context.
func (e *BlockedError) Unwrap() error { return e.cause }

// blocked returns what was in the way of a raise by the server process self that
// failed with err, or nil if it did not fail for that.
func (g *Guard) blocked(ctx context.Context, self uint32, resource string, waited time.Duration, err error) error {
	blocked := &BlockedError{Resource: resource, Waited: waited, cause: err}
	pgErr, isPg := errors.AsType[*pgconn.PgError](err)
	if isPg && pgErr.Code == "55P03" && pgErr.Detail != "" { // without a detail: some other lock
		var d struct {
			PID         int32     `json:"pid"`
			Application string    `json:"application_name"`
			State       string    `json:"state"`
			XactStart   time.Time `json:"xact_start"`
		}
		_ = json.Unmarshal([]byte(pgErr.Detail), &d) // the code alone decides
		blocked.PID, blocked.Application, blocked.State, blocked.Since = d.PID, d.Application, d.State, d.XactStart
		if d.PID != 0 && d.State == "" { // the function looks as its owner, who may see less than this role of its own sessions
			if seen := *blocked; g.look(ctx, &seen, self) && seen.State != "" {
				blocked = &seen
			}
		}
		return blocked
	}
	statementTimeout := isPg && pgErr.Code == "57014"
	if ctx.Err() == nil && !statementTimeout {
		return nil
	}
	// The context, or the session's statement_timeout, has ended before the lock
	// timeout, so the server has not said why it took so long. Whoever holds the
	// gate now is the reason, if anyone does.
	if !g.look(ctx, blocked, self) {
		return nil
	}
	return blocked
}

// The casts leave no choice of a function: to (text, integer) somebody's own in
// the schema public would fit better than (text, bigint) of pg_catalog.
const lookSQL = `
select l.pid, coalesce(a.application_name, ''), coalesce(a.state, ''), a.xact_start
  from (select pg_catalog.hashtextextended($1::text, 5070437::bigint) as gate) g, pg_locks l left join pg_stat_activity a using (pid)
 where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.pid <> $2
   and l.database = (select oid from pg_database where datname = current_database())
   and l.classid = ((g.gate >> 32) & 4294967295)::oid and l.objid = (g.gate & 4294967295)::oid
 order by a.xact_start nulls last limit 1`

func (g *Guard) look(ctx context.Context, b *BlockedError, self uint32) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBound)
	defer cancel()
	var since *time.Time
	err := g.pool.QueryRow(ctx, lookSQL, b.Resource, int64(self)).Scan(&b.PID, &b.Application, &b.State, &since)
	if err != nil {
		return false // pgx.ErrNoRows: nobody; anything else: unknown, and ctx's own error is the better one to report
	}
	if since != nil {
		b.Since = *since
	}
	return true
}
