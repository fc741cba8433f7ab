package pgguard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// A recorder is an observer that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	events []guard.Event
}

func (r *recorder) observe(e guard.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// take returns the events since it was last called.
func (r *recorder) take() []guard.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// until is a lease with a fixed deadline.
type until time.Time

func (u until) Deadline() time.Time { return time.Time(u) }

func TestObserverIsToldWhatIsLeftOfTheLeaseAtCommit(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		var r recorder
		g := db.newGuard(db.pool, pgguard.WithObserver(r.observe))
		plain, f := db.raised("r", 1, "A")
		lease := guard.WithDeadline(plain, until(time.Now().Add(-time.Hour)))
		commits := map[string]func(ctx context.Context) error{
			"InTx": func(ctx context.Context) error { return g.InTx(ctx, inserts(ctx, "InTx")) },
			"Once": func(ctx context.Context) error { return g.Once(ctx, "op", inserts(ctx, "Once")) },
			"BeginTx": func(ctx context.Context) error {
				tx, err := g.BeginTx(ctx, pgx.TxOptions{})
				return errors.Join(err, tx.Commit(t.Context()), tx.Rollback(t.Context()))
			},
			"Exec": func(ctx context.Context) error { _, err := g.Exec(ctx, "select 1"); return err },
			"Query": func(ctx context.Context) error {
				rows, err := g.Query(ctx, "select 1")
				rows.Close()
				rows.Close()
				return errors.Join(err, rows.Err())
			},
			"SendBatch": func(ctx context.Context) error {
				b := &pgx.Batch{}
				b.Queue("select 1")
				return g.SendBatch(ctx, b).Close()
			},
			"SendBatch that begins": func(ctx context.Context) error {
				b := &pgx.Batch{}
				b.BeginTx(pgx.TxOptions{})
				results := g.SendBatch(ctx, b)
				return errors.Join(results.Close(), results.Tx().Commit(t.Context()))
			},
		}
		for name, commit := range commits {
			err := commit(lease)
			if name == "BeginTx" {
				require.ErrorIs(t, err, pgx.ErrTxClosed, "of the Rollback")
			} else {
				require.NoError(t, err, name)
			}
			events := r.take()
			require.Len(t, events, 1, name)
			require.Equal(t, guard.EventCommitted, events[0].Kind, name)
			require.Equal(t, f, events[0].Fence, name)
			require.LessOrEqual(t, events[0].Remaining, -time.Hour, name)
			require.Equal(t, lease, events[0].Context, name)
		}

		undone := errors.New("undone")
		require.ErrorIs(t, g.InTx(lease, func(pgx.Tx) error { return undone }), undone)
		_, err := g.Exec(lease, "select 1/0")
		require.Error(t, err)
		require.NoError(t, g.InTx(plain, func(pgx.Tx) error { return nil }))
		require.Empty(t, r.take(), "rolled back, or under no lease")
	})
}

func TestObserverIsToldOfMissingFencesAndBlockedRaises(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	var r recorder
	g := newGuard(t, db.pool, pgguard.WithObserver(r.observe), pgguard.WithLockTimeout(100*time.Millisecond))
	tx, err := db.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	for name, call := range map[string]func() error{
		"InTx":      func() error { return g.InTx(t.Context(), nil) },
		"Exec":      func() error { _, err := g.Exec(t.Context(), "select 1"); return err },
		"SendBatch": func() error { return g.SendBatch(t.Context(), &pgx.Batch{}).Close() },
		"Enter":     func() error { return g.Enter(t.Context(), tx) },
	} {
		err := call()
		require.ErrorIs(t, err, guard.ErrNoFence, name)
		require.Equal(t, []guard.Event{{Kind: guard.EventRefused, Context: t.Context(), Err: err}}, r.take(), name)
	}

	ctx, f := db.raised("r", 1, "A")
	require.NoError(t, db.guard.Enter(ctx, tx)) // with an idle timeout that is longer than g's lock timeout
	later := f
	later.Token, later.Nonce = 2, "later"
	err = g.Raise(t.Context(), later)
	require.ErrorIs(t, err, guard.ErrBlocked)
	require.ErrorIs(t, g.Raise(guard.Observed(t.Context()), later), guard.ErrBlocked)
	_, issueErr := g.Issue(t.Context(), "r", "minted", "B")
	require.ErrorIs(t, issueErr, guard.ErrBlocked)
	events := r.take()
	require.Len(t, events, 2, "of the second the caller tells")
	require.Equal(t, guard.EventRefused, events[0].Kind)
	require.Equal(t, later, events[0].Fence)
	require.GreaterOrEqual(t, events[0].Took, 100*time.Millisecond)
	require.Equal(t, err, events[0].Err)
	require.Equal(t, guard.Fence{Resource: "r", Nonce: "minted", Holder: "B"}, events[1].Fence)
}

func TestObserverIsToldOnceOfAnUnknownCommit(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	var r recorder
	p := newProxy(t, db.url)
	pool := newPool(t, p.url, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	g := newGuard(t, pool, pgguard.WithObserver(r.observe))
	ctx, _ := db.raised("r", 1, "A")
	require.NoError(t, g.InTx(ctx, func(pgx.Tx) error { return nil }))
	const insert = "insert into item values ($1, 1) returning id"
	for name, call := range map[string]func(id string) error{
		"Exec": func(id string) error { _, err := g.Exec(ctx, insert, id); return err },
		"SendBatch": func(id string) error {
			b := &pgx.Batch{}
			b.Queue(insert, id)
			results := g.SendBatch(ctx, b)
			_, err := results.Exec()
			return errors.Join(err, results.Close())
		},
		"batch that is cut off in the middle": func(string) error {
			b := &pgx.Batch{}
			b.Queue("select 1")
			b.Queue("select pg_terminate_backend(pg_backend_pid())")
			results := g.SendBatch(ctx, b)
			_, err := results.Exec()
			require.NoError(t, err)
			_, err = results.Exec()
			return errors.Join(err, results.Close())
		},
	} {
		if name != "batch that is cut off in the middle" {
			p.failOn("insert into item", loseReply, nil)
		}
		require.ErrorIs(t, call(name), guard.ErrCommitUnknown, name)
		events := r.take()
		require.Len(t, events, 1, name)
		require.Equal(t, guard.EventRefused, events[0].Kind, name)
		require.ErrorIs(t, events[0].Err, guard.ErrCommitUnknown, name)
	}
}
