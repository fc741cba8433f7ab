package pglock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
)

// maxRaiseWait bounds how long an acquisition waits in the server for a
// transaction of an earlier fence, as pgguard's raise does.
const maxRaiseWait = 10 * time.Second

type config struct {
	schema  string
	maxJump guard.Token
	raise   bool
	listen  *pgx.ConnConfig // nil: that of the pool
	polling bool
}

// An Option configures a [Backend].
type Option func(*config) error

// WithSchema names the fence schema, exactly and without SQL quotes. Defaults to
// "fencing".
func WithSchema(name string) Option {
	return func(c *config) error {
		c.schema = name
		if name == "" || len(name) > 63 || strings.ContainsRune(name, 0) {
			return fmt.Errorf("schema name %.80q is not 1 to 63 bytes without NUL", name)
		}
		return nil
	}
}

// WithMaxJump bounds how far ahead of a counter an acquisition may ask for a
// token. Defaults to sequencer.DefaultMaxJump.
func WithMaxJump(d guard.Token) Option {
	return func(c *config) error {
		c.maxJump = d
		if d <= 0 {
			return fmt.Errorf("greatest jump %d is not positive", d)
		}
		return nil
	}
}

// WithRaise raises the fence of every acquisition in the same transaction, in the
// schema of the leases: one step and one commit instead of two, and tokens that are
// above that of the fence in force. A guard on the same database needs no
// lock.WithGuards then; with it, it finds the fence raised, at the price of a
// round trip.
//
// Like a raise, the acquisition waits for open transactions of an earlier fence, at
// most 10s or half of the TTL, and then fails with guard.ErrBlocked. Meanwhile it
// occupies a connection of the pool. The back end leaves one for renewals and releases,
// so a pool of its own needs at least 2; an acquisition for which none is left stands in
// line. For more that wait at the same time give the pool a connection each.
func WithRaise() Option { return func(c *config) error { c.raise = true; return nil } }

// WithListen makes the connection that listens go to another address than those of
// the pool: straight to the server, where the pool goes through a PgBouncer, behind
// which nobody can LISTEN in transaction mode. The back end finds that out by
// itself; waiters ask every lock.WithRetryWait then. The configuration is one of
// pgx.ParseConfig.
func WithListen(to *pgx.ConnConfig) Option {
	return func(c *config) error {
		if to == nil {
			return errors.New("the configuration for listening is nil")
		}
		if !parsed(to) {
			return errors.New("the configuration for listening is not from pgx.ParseConfig, without which pgx does not connect")
		}
		c.listen = to.Copy()
		return nil
	}
}

// parsed reports whether config comes from pgx.ParseConfig. pgx alone knows, and
// panics where it does not; here it gets no farther than that.
func parsed(config *pgx.ConnConfig) (ok bool) {
	defer func() { ok = recover() == nil }()
	probe := config.Copy()
	probe.Tracer = nil
	refused := errors.New("not to be connected")
	probe.LookupFunc = func(context.Context, string) ([]string, error) { return nil, refused }
	probe.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, refused }
	_, _ = pgx.ConnectConfig(context.Background(), probe)
	return true
}

// WithoutListen makes waiters ask every lock.WithRetryWait, and saves the connection
// that listens.
func WithoutListen() Option { return func(c *config) error { c.polling = true; return nil } }

func newConfig(opts []Option) (config, error) {
	c := config{schema: "fencing", maxJump: sequencer.DefaultMaxJump}
	for _, opt := range opts {
		if opt == nil {
			return c, errors.New("pglock: an option is nil")
		}
		if err := opt(&c); err != nil {
			return c, fmt.Errorf("pglock: %w", err)
		}
	}
	if c.polling && c.listen != nil {
		return c, errors.New("pglock: WithListen and WithoutListen exclude each other")
	}
	return c, nil
}
