package pgguard

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
)

const (
	defaultSchema      = "fencing"
	defaultLockTimeout = 10 * time.Second

	// cleanupBound bounds what is done on a context that may be dead already.
	cleanupBound = 5 * time.Second
)

// A Guard raises fences in one PostgreSQL database and fences transactions on
// them. It is safe for concurrent use. The pool remains the caller's: closing it
// ends the guard.
type Guard struct {
	pool        *pgxpool.Pool
	sql         texts
	lockTimeout int32 // milliseconds
	idleTimeout int32 // milliseconds
	observer    guard.Observer
	deferred    bool        // see WithDeferredBegin
	simple      bool        // the pool uses the simple protocol
	checked     atomic.Bool // the schema was found fit
}

var _ guard.Guard = (*Guard)(nil)

type options struct {
	schema      string
	lockTimeout time.Duration
	idleTimeout *time.Duration // nil: half the lock timeout
	observer    guard.Observer
	deferred    bool
}

// An Option configures a [Guard].
type Option func(*options)

// WithSchema names the schema that holds the fence functions. Defaults to
// "fencing".
func WithSchema(name string) Option { return func(o *options) { o.schema = name } }

// WithLockTimeout bounds how long a raise waits in the server for transactions of
// an earlier fence, before it fails with [guard.ErrBlocked]. Defaults to 10s.
// Zero is refused: a raise without a bound hides a transaction that never ends.
func WithLockTimeout(d time.Duration) Option { return func(o *options) { o.lockTimeout = d } }

// WithIdleTimeout bounds how long a fenced transaction may sit idle between two
// statements before the server ends it: while it does, no later fence can be
// raised. It must be shorter than the lock timeout, so that a raise outlives an
// idle stale transaction. Where the session's idle_in_transaction_session_timeout
// is shorter, that stays. Defaults to half the lock timeout, that is 5s.
func WithIdleTimeout(d time.Duration) Option { return func(o *options) { o.idleTimeout = &d } }

// WithObserver reports [guard.EventRaised], with how long the raise took,
// [guard.EventCommitted], with how much was left of the lease, and
// [guard.EventRefused], with the error: of a raise, of a write, and of a commit
// whose outcome is unknown. Of a raise by a locker with an observer it is that one
// which is told.
func WithObserver(ob guard.Observer) Option { return func(o *options) { o.observer = ob } }

// New returns a guard on pool. It does not talk to the server: the first call
// checks the fence schema, and fails with [ErrSchema] where that is missing or
// does not fit.
func New(pool *pgxpool.Pool, opts ...Option) (*Guard, error) {
	if pool == nil {
		return nil, errors.New("pgguard: the pool is nil")
	}
	o := options{schema: defaultSchema, lockTimeout: defaultLockTimeout}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("pgguard: an option is nil")
		}
		opt(&o)
	}
	if o.schema == "" || len(o.schema) > 63 || strings.ContainsRune(o.schema, 0) {
		return nil, fmt.Errorf("pgguard: schema name %.80q is not 1 to 63 bytes without NUL", o.schema)
	}
	lock, err := milliseconds("lock timeout", o.lockTimeout)
	if err != nil {
		return nil, err
	}
	idle := max(lock/2, 1)
	if o.idleTimeout != nil {
		if idle, err = milliseconds("idle timeout", *o.idleTimeout); err != nil {
			return nil, err
		}
	}
	if idle >= lock {
		return nil, fmt.Errorf("pgguard: the idle timeout %v is not shorter than the lock timeout %v: a raise would give up before an idle transaction is ended",
			time.Duration(idle)*time.Millisecond, o.lockTimeout)
	}
	return &Guard{
		pool: pool, sql: textsFor(o.schema), lockTimeout: lock, idleTimeout: idle, observer: o.observer, deferred: o.deferred,
		simple: pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol,
	}, nil
}

func milliseconds(what string, d time.Duration) (int32, error) {
	ms := d / time.Millisecond
	if ms < 1 || ms > math.MaxInt32 || d%time.Millisecond != 0 {
		return 0, fmt.Errorf("pgguard: the %s %v is not a whole number of milliseconds between 1ms and %v", what, d, math.MaxInt32*time.Millisecond)
	}
	return int32(ms), nil
}
