package sqlguard

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/go-fencing/fencing/guard"
)

// Wrap returns a connector whose connections fence what they run by themselves.
// Open it with sql.OpenDB:
//
//	db := sql.OpenDB(sqlguard.Wrap(connector, sqlguard.Postgres))
//
// On this *sql.DB, whose users need not know of it:
//
//   - a transaction enters every fence of the context that it is begun with;
//   - a statement outside a transaction, prepared or not, is run in one of its own
//     that enters every fence of the statement's context. That of a query commits
//     when the rows have been read to the end or are closed: check Err of the rows,
//     and the error of Close where you stop early;
//   - a statement in a transaction whose context carries a fence that was not
//     entered when that began enters it first. If that fails, as for a fence that is
//     not in force any more, the transaction can only be rolled back;
//   - without a fence in the context, Exec and a transaction that is not read-only
//     are refused with [guard.ErrNoFence]. Reads are let through. A query that may
//     be a write, such as INSERT ... RETURNING, runs in a read-only transaction, and
//     what the database refuses there is guard.ErrNoFence too. See
//     [WithPassThrough].
//
// Errors are translated as by [Translate]; a commit whose reply was lost is
// [guard.ErrCommitUnknown]. Transaction control by SQL is refused, apart from
// savepoints, and so are in MySQL and MariaDB USE, and PREPARE and EXECUTE, whose text
// is hidden, and in a fenced transaction statements that MySQL commits implicitly.
// After an error with which MySQL or SQLite has rolled back the transaction by itself
// nothing more is run in it.
//
// Without a fence there is no way around the read-only transaction: statements that
// commit implicitly are guard.ErrNoFence too, and so are a PRAGMA of SQLite that may do
// more than read, and in Postgres DO, and SET and RESET of what makes a transaction
// read-only.
//
// It does not see what a function does that a SELECT calls, and not the inside of a
// procedure or of EXECUTE: in MySQL these can commit, and up to Postgres 15 they can
// make a read-only transaction one that writes. Run migrations on a database that is
// not wrapped. What [database/sql.Conn.Raw] hands out is this package's connection.
//
// A mistake in the arguments is reported by the first connection. Of the options
// [WithSchema], [WithLockTimeout], [WithIdleTimeout] and [WithObserver] are those of
// [New].
func Wrap(c driver.Connector, d Dialect, opts ...Option) driver.Connector {
	e, s, err := configure(d, opts)
	if err == nil && c == nil {
		err = errors.New("sqlguard: the connector is nil")
	}
	return &connector{inner: c, engine: e, settings: s, err: err}
}

type connector struct {
	inner  driver.Connector
	engine engine
	settings
	err error
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	inner, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{inner: inner, connector: c}, nil
}

// Driver returns the driver of the connector inside, by which others recognise the
// database.
func (c *connector) Driver() driver.Driver {
	if c.inner == nil {
		return noDriver{c.err}
	}
	return c.inner.Driver()
}

func (c *connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// noDriver is that of a connector that was made from none.
type noDriver struct{ err error }

func (d noDriver) Open(string) (driver.Conn, error) { return nil, d.err }

// A door is the way that a statement takes.
type door uint8

const (
	asItIs   door = iota // it is let through, or runs in the open transaction
	fenced               // in a transaction of its own that enters
	readOnly             // in a read-only transaction of its own
)

// door decides how a statement runs, and returns the fences to enter. reads: it is
// a query, which need not be a write.
func (c *conn) door(ctx context.Context, query string, reads bool) (door, []guard.Fence, error) {
	switch {
	case isWithin(ctx) && c.tx != nil:
		return asItIs, nil, c.tx.admit(ctx, nil)
	case isWithin(ctx):
		return asItIs, nil, nil
	}
	held := guard.Fences(ctx)
	hasFence := len(held) > 0 || c.tx.fenced()
	err := checkControl(c.dialect, query, c.tx != nil, hasFence || !c.passThrough)
	switch {
	case errors.Is(err, errCommits) && !hasFence:
		err = c.noFence(ctx, "statement", ", and before it MySQL commits the transaction that it would run in")
	case err == nil && !hasFence:
		err = c.checkReadOnly(ctx, query)
	}
	if err != nil {
		return 0, nil, err
	}
	switch {
	case c.tx != nil:
		return asItIs, nil, c.tx.admit(ctx, held)
	case len(held) > 0:
		return fenced, held, valid(held)
	case c.passThrough:
		return asItIs, nil, nil
	case !reads:
		return 0, nil, c.noFence(ctx, "statement", "")
	case plainRead(c.dialect, query):
		return asItIs, nil, nil
	}
	return readOnly, nil, nil
}

// checkReadOnly refuses a statement without a fence that may do what no read-only
// transaction prevents.
func (c *conn) checkReadOnly(ctx context.Context, query string) error {
	if c.passThrough || keepsReadOnly(c.dialect, query) {
		return nil
	}
	return c.noFence(ctx, "statement", ", and it may change the database, or whether its transaction is read-only")
}
