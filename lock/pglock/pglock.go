// Package pglock is the lock back end on PostgreSQL, through pgx: a lease table in
// the fence schema, which package migrations installs. It needs no Redis.
//
// Every call is one round trip. Time is the server's clock alone, so a step of that
// clock ends leases early or late; the clocks of clients do not matter. A token is
// handed out once its commit is on disk, whatever the session's
// synchronous_commit says, so that a crash repeats none.
//
// A release deletes the row of the lease, and the tokens of all resources come from
// 1,024 counters: what nobody holds leaves nothing behind. The row of a holder who
// died stays until its resource is acquired again, or is swept after a day.
//
// Who waits is woken by NOTIFY; see [Backend.Watch] for the connection that this
// takes, and [WithListen] for a pool that goes through PgBouncer. With [WithRaise]
// the acquisition raises the fence in the same transaction.
//
// # What to look after
//
// A holder that crashed keeps its lease until the TTL ends. So does an acquisition that
// was given up and undone where the server got neither call in time: it is refused for
// an hour after the release that undoes it has arrived, but a locker gives that release
// up after 5s. After a longer outage the network may deliver the acquisition alone.
//
// Every call takes a connection of the pool, a renewal too. If the work under the leases
// uses up the pool, they cannot be renewed, and are lost when their TTL ends. Give
// the back end a pool of its own, where 2 to 4 connections are plenty (but see
// [WithRaise]), or keep some of the shared one free: pgxpool has no more than 4 or the
// number of CPUs by default.
//
// While any transaction in the database is old, dead versions of the rows in here
// cannot be pruned: that of a pg_dump, a long report, a session that is idle in
// transaction, a prepared one, a replication slot or standby with
// hot_standby_feedback that has fallen behind. Each acquisition reads those of its
// resource, and takes some milliseconds longer for every 1,000 acquisitions since. It
// recovers by itself afterwards. Set idle_in_transaction_session_timeout, and read from a
// standby without feedback what takes hours.
package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A Backend keeps leases in PostgreSQL. It is safe for concurrent use and
// implements all optional interfaces of package lock.
type Backend struct {
	pool   *pgxpool.Pool
	config config
	sql    texts
	hub    *hub
	slots  chan struct{} // one for each acquisition that may wait in the server, see [WithRaise]
}

var (
	_ lock.Backend      = (*Backend)(nil)
	_ lock.Waiter       = (*Backend)(nil)
	_ lock.Joiner       = (*Backend)(nil)
	_ lock.Inspector    = (*Backend)(nil)
	_ lock.BatchRenewer = (*Backend)(nil)
	_ lock.FairBackend  = (*Backend)(nil)
	_ lock.Bounded      = (*Backend)(nil)
)

// New returns a back end on pool. It does not talk to the server: the first call
// fails with [ErrSchema] where the fence schema is missing. It never closes pool.
// The error names the option that makes no sense.
func New(pool *pgxpool.Pool, opts ...Option) (*Backend, error) {
	if pool == nil {
		return nil, errors.New("pglock: the pool is nil")
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	b := &Backend{pool: pool, config: c, sql: textsFor(c.schema)}
	if c.raise {
		b.slots = make(chan struct{}, max(1, pool.Config().MaxConns-1))
	}
	b.hub = newHub(b)
	return b, nil
}

// Bounded implements [lock.Bounded]: pgx gives up a call at the end of its context.
func (b *Backend) Bounded() bool { return true }

// Acquire implements [lock.Backend]. Beyond the errors named there it returns
// sequencer.ErrJump if r.After is implausibly far ahead of the counter,
// sequencer.ErrExhausted at the end of the integers, [ErrSchema] and, with
// [WithRaise], guard.ErrBlocked.
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	return b.acquire(ctx, b.sql.acquire, r)
}

// AcquireInTurn implements [lock.FairBackend]. Acquire takes no notice of the
// queue: either all processes use a resource with lock.WithFair, or none.
func (b *Backend) AcquireInTurn(ctx context.Context, r lock.Request, patience time.Duration) (guard.Token, error) {
	return b.acquire(ctx, b.sql.inTurn, r, milliseconds(patience))
}

var errNoSlot = errors.New("not sent: other acquisitions occupy all but one of the pool's connections; give the pool more of them")

func (b *Backend) acquire(ctx context.Context, sql string, r lock.Request, patience ...any) (guard.Token, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	if b.slots != nil {
		select {
		case b.slots <- struct{}{}:
			defer func() { <-b.slots }()
		case <-ctx.Done():
			return 0, b.failed(ctx, "acquire", r.Resource, errNoSlot)
		}
	}
	var (
		token, left *int64
		holder      string
	)
	args := append([]any{r.Resource, r.Nonce, r.Holder, milliseconds(r.TTL), int64(r.After), int64(b.config.maxJump), b.raiseTimeout(r.TTL)}, patience...)
	err := b.call(ctx, row(&token, &holder, &left), sql, args...)
	switch {
	case err != nil:
		return 0, b.failed(ctx, "acquire", r.Resource, err)
	case token != nil:
		return guard.Token(*token), nil
	}
	held := &lock.HeldError{Resource: r.Resource, Holder: holder}
	if left != nil {
		held.Remaining = time.Duration(*left) * time.Millisecond
	}
	return 0, held
}

// Withdraw implements [lock.FairBackend].
func (b *Backend) Withdraw(ctx context.Context, r lock.Request) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	err := b.call(ctx, row(nil), b.sql.withdraw, r.Resource, r.Nonce)
	return b.failed(ctx, "withdraw", r.Resource, err)
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, r lock.Request) error {
	return b.renew(ctx, "renew", []lock.Request{r}, nil)[0]
}

// RenewAll implements [lock.BatchRenewer] with one statement.
func (b *Backend) RenewAll(ctx context.Context, requests []lock.Request) []error {
	return b.renew(ctx, "renew", requests, nil)
}

// Join implements [lock.Joiner].
func (b *Backend) Join(ctx context.Context, r lock.Request, member string) error {
	return b.renew(ctx, "join", []lock.Request{r}, &member)[0]
}

func (b *Backend) renew(ctx context.Context, what string, requests []lock.Request, member *string) []error {
	var (
		errs              = make([]error, len(requests))
		resources, nonces []string
		ttls              []int64
	)
	for i, r := range requests {
		if errs[i] = r.Validate(); errs[i] == nil {
			resources, nonces, ttls = append(resources, r.Resource), append(nonces, r.Nonce), append(ttls, milliseconds(r.TTL))
		}
	}
	if len(resources) == 0 {
		return errs
	}
	type lease struct{ resource, nonce string }
	kept := make(map[lease]bool, len(resources))
	err := b.call(ctx, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		var l lease
		_, err = pgx.ForEachRow(rows, []any{&l.resource, &l.nonce}, func() error { kept[l] = true; return nil })
		return err
	}, b.sql.renew, resources, nonces, ttls, member)
	for i, r := range requests {
		switch {
		case errs[i] != nil:
		case err != nil:
			errs[i] = b.failed(ctx, what, r.Resource, err)
		case !kept[lease{r.Resource, r.Nonce}]:
			errs[i] = fmt.Errorf("pglock: %s %q: %w", what, r.Resource, lock.ErrLost)
		}
	}
	return errs
}

// Release implements [lock.Backend]. It does not wait for the disk: after a crash of
// the server the lock may be held again until its TTL ends.
func (b *Backend) Release(ctx context.Context, r lock.Request) error { return b.Leave(ctx, r, r.Nonce) }

// Leave implements [lock.Joiner].
func (b *Backend) Leave(ctx context.Context, r lock.Request, member string) error {
	if err := r.ValidateOwner(); err != nil {
		return err
	}
	var left bool
	err := b.call(ctx, row(&left), b.sql.release, r.Resource, r.Nonce, member)
	switch {
	case err != nil:
		return b.failed(ctx, "release", r.Resource, err)
	case !left:
		return fmt.Errorf("pglock: release %q: %w", r.Resource, lock.ErrLost)
	}
	return nil
}

// Inspect implements [lock.Inspector].
func (b *Backend) Inspect(ctx context.Context, resource string) (lock.Holding, error) {
	h := lock.Holding{Resource: resource}
	if err := guard.ValidateResource(resource); err != nil {
		return h, err
	}
	var left int64
	err := b.call(ctx, row((*int64)(&h.Token), &h.Holder, &h.Members, &left), b.sql.holding, resource)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, nil
	}
	h.Remaining = max(0, time.Duration(left)*time.Millisecond)
	return h, b.failed(ctx, "inspect", resource, err)
}

// raiseTimeout is how long an acquisition may wait in the server for transactions
// of an earlier fence, nil if it raises none. Then at least half of the TTL is
// left, and the error can say who was in the way.
func (b *Backend) raiseTimeout(ttl time.Duration) *int32 {
	if !b.config.raise {
		return nil
	}
	ms := int32(milliseconds(min(ttl/2, maxRaiseWait)))
	return &ms
}

// milliseconds rounds up, so that no TTL becomes 0.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
