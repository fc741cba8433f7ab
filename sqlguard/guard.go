package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-fencing/fencing/guard"
)

const (
	defaultSchema      = "fencing"
	defaultLockTimeout = 10 * time.Second

	// cleanupBound bounds what is done on a context that may be dead already.
	cleanupBound = 5 * time.Second
)

// A Guard raises fences in one database and fences transactions on them. It is
// safe for concurrent use. The *sql.DB remains the caller's: closing it ends the
// guard.
type Guard struct {
	db     *sql.DB
	engine engine
	settings
	checked  atomic.Bool              // the schema was found fit
	prepared atomic.Pointer[sql.Stmt] // sqliteEnter, for SQLite
}

var _ guard.Guard = (*Guard)(nil)

// settings are what the options say.
type settings struct {
	dialect     Dialect
	sql         texts // Postgres only
	lockTimeout time.Duration
	idleTimeout time.Duration // Postgres only
	observer    guard.Observer
	passThrough bool
}

type options struct {
	settings
	schema      *string
	idleTimeout *time.Duration // nil: half the lock timeout
}

// An Option configures a [Guard] or what [Wrap] makes.
type Option func(*options)

// WithSchema names the schema that holds the fence functions in Postgres.
// Defaults to "fencing". The other dialects refuse it: their table is
// fencing_fence in the database of the connection.
func WithSchema(name string) Option { return func(o *options) { o.schema = &name } }

// WithLockTimeout bounds how long a raise waits for transactions of an earlier
// fence before it fails with [guard.ErrBlocked], and in SQLite how long a fenced
// transaction waits for the write lock. Defaults to 10s. Zero is refused: a raise
// without a bound hides a transaction that never ends.
func WithLockTimeout(d time.Duration) Option { return func(o *options) { o.lockTimeout = d } }

// WithIdleTimeout bounds how long a fenced transaction in Postgres may sit idle
// between two statements before the server ends it: while it does, no later fence
// can be raised. It must be shorter than the lock timeout. Defaults to half the
// lock timeout, that is 5s.
//
// The other dialects refuse it. MariaDB has a system variable for that purpose,
// which go-sql-driver sets from its data source name: idle_transaction_timeout=5.
func WithIdleTimeout(d time.Duration) Option { return func(o *options) { o.idleTimeout = &d } }

// WithObserver reports [guard.EventRaised], with how long the raise took,
// [guard.EventCommitted], with how much was left of the lease, and
// [guard.EventRefused], with the error: of a raise, of a write, and of a commit
// whose outcome is unknown. Of a raise by a locker with an observer it is that one
// which is told. The commit of a transaction from [Guard.BeginTx] is the caller's,
// and nobody tells of it.
func WithObserver(ob guard.Observer) Option { return func(o *options) { o.observer = ob } }

// WithPassThrough lets statements and transactions through whose context carries
// no fence, for a database of which only a part is guarded. It is for [Wrap]
// alone.
func WithPassThrough() Option { return func(o *options) { o.passThrough = true } }

// New returns a guard on db. It does not talk to the server: the first call checks
// the fence schema, and fails with [ErrSchema] where that is missing or does not
// fit. db may be one that [Wrap] leads to.
func New(db *sql.DB, d Dialect, opts ...Option) (*Guard, error) {
	if db == nil {
		return nil, errors.New("sqlguard: the database is nil")
	}
	e, s, err := configure(d, opts)
	if err != nil {
		return nil, err
	}
	if s.passThrough {
		return nil, errors.New("sqlguard: WithPassThrough is for Wrap; a Guard has no statements to let through")
	}
	return &Guard{db: db, engine: e, settings: s}, nil
}

// configure validates a dialect and options.
func configure(d Dialect, opts []Option) (engine, settings, error) {
	e, err := d.engine()
	if err != nil {
		return nil, settings{}, err
	}
	o := options{settings: settings{dialect: d, lockTimeout: defaultLockTimeout}}
	for _, opt := range opts {
		if opt == nil {
			return nil, settings{}, errors.New("sqlguard: an option is nil")
		}
		opt(&o)
	}
	if err := o.validate(d); err != nil {
		return nil, settings{}, err
	}
	return e, o.settings, nil
}

func (o *options) validate(d Dialect) error {
	if err := wholeMilliseconds("lock timeout", o.lockTimeout); err != nil {
		return err
	}
	if d != Postgres {
		switch {
		case o.schema != nil:
			return fmt.Errorf("sqlguard: WithSchema is for Postgres; in %s the table %s is in the database of the connection", d, fenceTable)
		case o.idleTimeout != nil && d == MySQL:
			return errors.New("sqlguard: WithIdleTimeout is for Postgres; for MariaDB set idle_transaction_timeout in the data source name")
		case o.idleTimeout != nil:
			return errors.New("sqlguard: WithIdleTimeout is for Postgres; SQLite has no such timeout")
		}
		return nil
	}
	schema := defaultSchema
	if o.schema != nil {
		schema = *o.schema
	}
	if schema == "" || len(schema) > 63 || strings.ContainsRune(schema, 0) {
		return fmt.Errorf("sqlguard: schema name %.80q is not 1 to 63 bytes without NUL", schema)
	}
	o.sql = textsFor(schema)
	o.settings.idleTimeout = max(o.lockTimeout/2, time.Millisecond).Truncate(time.Millisecond)
	if o.idleTimeout == nil {
		return nil
	}
	o.settings.idleTimeout = *o.idleTimeout
	if err := wholeMilliseconds("idle timeout", *o.idleTimeout); err != nil {
		return err
	}
	if *o.idleTimeout >= o.lockTimeout {
		return fmt.Errorf("sqlguard: the idle timeout %v is not shorter than the lock timeout %v: a raise would give up before an idle transaction is ended", *o.idleTimeout, o.lockTimeout)
	}
	return nil
}

func wholeMilliseconds(what string, d time.Duration) error {
	ms := d / time.Millisecond
	if ms < 1 || ms > math.MaxInt32 || d%time.Millisecond != 0 {
		return fmt.Errorf("sqlguard: the %s %v is not a whole number of milliseconds between 1ms and %v", what, d, math.MaxInt32*time.Millisecond)
	}
	return nil
}

// entering is what is known of a transaction that enters.
type entering struct {
	readOnly bool // it will not write
	first    bool // it has run no statement before, so that it has no snapshot
}

// An engine is what the dialects do differently.
type engine interface {
	// raise makes the claim's fence the current one, or finds it superseded, and
	// returns the fence in force once that has been committed.
	raise(ctx context.Context, db *sql.DB, s *settings, c claim) (guard.Record, error)

	// enter enters held in the transaction of tx.
	enter(ctx context.Context, tx session, s *settings, held []guard.Fence, e entering) error

	// begins returns how a transaction with these options begins, and what is to
	// be executed after it has entered.
	begins(o sql.TxOptions) (begin sql.TxOptions, after string)

	// readOnly returns the statements that make a connection read-only, and undo
	// that, where a read-only transaction is not enough.
	readOnly() (on, off string)

	// rolledBack reports whether the database has ended the transaction of tx by
	// itself with err.
	rolledBack(ctx context.Context, tx session, err error) bool

	// open reports whether the transaction of tx, about to be committed, is still
	// there, where its commit would not tell.
	open(ctx context.Context, tx session) (bool, error)

	// check returns why the schema does not fit.
	check(ctx context.Context, tx session, s *settings) error
}
