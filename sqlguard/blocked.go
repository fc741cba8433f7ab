package sqlguard

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-fencing/fencing/guard"
)

// lookBound bounds the search for the connection that blocked a raise.
const lookBound = time.Second

// BlockedError says what kept a raise waiting. It is [guard.ErrBlocked], and wraps
// the error of the driver or of the context. Of several transactions it names the
// oldest. What the database does not tell, this user may not see, or was gone by
// the time, is zero. SQLite never tells, and MariaDB not if the transaction has
// written nothing and there are others like it.
type BlockedError struct {
	Resource   string
	Waited     time.Duration // how long the raise took to give up
	Connection int64         // process id in Postgres, connection id in MySQL
	Client     string        // its application_name in Postgres, user@host in MySQL
	State      string        // what it does: "idle in transaction", "Sleep", ...
	Since      time.Time     // when its transaction began
	cause      error
}

func (e *BlockedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sqlguard: %q: blocked for %v by ", e.Resource, e.Waited.Round(time.Millisecond))
	if e.Connection == 0 {
		b.WriteString("another transaction")
	} else {
		fmt.Fprintf(&b, "connection %d", e.Connection)
		if e.Client != "" {
			fmt.Fprintf(&b, " of %q", e.Client)
		}
		if e.State != "" {
			fmt.Fprintf(&b, ", %s", e.State)
		}
		if !e.Since.IsZero() {
			fmt.Fprintf(&b, ", in a transaction of %v since %s", max(time.Since(e.Since), 0).Round(time.Millisecond), e.Since.UTC().Format(time.RFC3339))
		}
	}
	fmt.Fprintf(&b, "; nothing was changed, try again or end that transaction: %v", e.cause)
	return b.String()
}

// Is reports whether target is [guard.ErrBlocked].
func (e *BlockedError) Is(target error) bool { return target == guard.ErrBlocked }

// Unwrap returns the error of the driver or of the context.
func (e *BlockedError) Unwrap() error { return e.cause }

func isBlocked(err error) bool {
	_, ok := errors.AsType[*BlockedError](err)
	return ok
}
