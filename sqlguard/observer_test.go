package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

// until is a lease with a fixed deadline.
type until time.Time

func (u until) Deadline() time.Time { return time.Time(u) }

func TestObserverIsToldWhatIsLeftOfTheLeaseAtCommit(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		var events []guard.Event
		observe := sqlguard.WithObserver(func(e guard.Event) { events = append(events, e) })
		g := db.newGuard(observe)
		wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, observe))
		onWrapped, err := sqlguard.New(wrapped, db.dialect, observe)
		require.NoError(t, err)
		plain, f := db.raised("r", 1, "A")
		lease := guard.WithDeadline(plain, until(time.Now().Add(-time.Hour)))
		update := func(ctx context.Context) func(tx *sql.Tx) error {
			return func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, "update item set stock = 1"); return err }
		}
		for name, commit := range map[string]func(ctx context.Context) error{
			"InTx":                       func(ctx context.Context) error { return g.InTx(ctx, update(ctx)) },
			"InTx on a wrapped database": func(ctx context.Context) error { return onWrapped.InTx(ctx, update(ctx)) },
			"BeginTx and Commit": func(ctx context.Context) error {
				tx, err := g.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				return errors.Join(update(ctx)(tx), g.Commit(ctx, tx))
			},
			"Enter and Commit": func(ctx context.Context) error {
				tx, err := db.db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				return errors.Join(g.Enter(ctx, tx), update(ctx)(tx), g.Commit(ctx, tx))
			},
			"statement of a wrapped one": func(ctx context.Context) error {
				_, err := wrapped.ExecContext(ctx, "update item set stock = 1")
				return err
			},
			"query of a wrapped one": func(ctx context.Context) error {
				return wrapped.QueryRowContext(ctx, "select count(*) from item").Scan(new(int))
			},
			"transaction of the wrapped one": func(ctx context.Context) error {
				tx, err := wrapped.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				return errors.Join(update(ctx)(tx), tx.Commit())
			},
		} {
			events = nil
			require.NoError(t, commit(lease), name)
			require.Len(t, events, 1, name)
			require.Equal(t, guard.EventCommitted, events[0].Kind, name)
			require.Equal(t, f, events[0].Fence, name)
			require.LessOrEqual(t, events[0].Remaining, -time.Hour, name)
			deadline, ok := guard.Deadline(events[0].Context)
			require.True(t, ok, name)
			require.False(t, deadline.IsZero(), name)

			events = nil
			require.NoError(t, commit(plain), name)
			require.Empty(t, events, "%s: under no lease", name)
		}
		undone := errors.New("undone")
		require.ErrorIs(t, g.InTx(lease, func(*sql.Tx) error { return undone }), undone)
		require.NoError(t, wrapped.QueryRowContext(t.Context(), "select count(*) from item").Scan(new(int)))
		require.Empty(t, events)
	})
}

func TestObserverIsToldOfMissingFences(t *testing.T) {
	eachTarget(t, func(t *testing.T, db *database) {
		var events []guard.Event
		observe := sqlguard.WithObserver(func(e guard.Event) { events = append(events, e) })
		g := db.newGuard(observe)
		wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect, observe))
		tx, err := db.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		for name, call := range map[string]func() error{
			"InTx":                func() error { return g.InTx(t.Context(), nil) },
			"Enter":               func() error { return g.Enter(t.Context(), tx) },
			"wrapped statement":   func() error { _, err := wrapped.ExecContext(t.Context(), "update item set stock = 1"); return err },
			"wrapped transaction": func() error { _, err := wrapped.BeginTx(t.Context(), nil); return err },
		} {
			events = nil
			err := call()
			require.ErrorIs(t, err, guard.ErrNoFence, name)
			require.Len(t, events, 1, name)
			require.Equal(t, guard.EventRefused, events[0].Kind, name)
			require.ErrorIs(t, events[0].Err, guard.ErrNoFence, name)
		}
	})
}

func TestObserverIsToldOnceOfAnUnknownCommit(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(ctx context.Context, db *sql.DB, observe sqlguard.Option) error{
		"statement": func(ctx context.Context, db *sql.DB, _ sqlguard.Option) error {
			_, err := db.ExecContext(ctx, "update item set stock = stock + 1")
			return err
		},
		"InTx": func(ctx context.Context, db *sql.DB, observe sqlguard.Option) error {
			g, err := sqlguard.New(db, sqlguard.SQLite, observe)
			require.NoError(t, err)
			return g.InTx(ctx, func(*sql.Tx) error { return nil })
		},
		"BeginTx and Commit": func(ctx context.Context, db *sql.DB, observe sqlguard.Option) error {
			g, err := sqlguard.New(db, sqlguard.SQLite, observe)
			require.NoError(t, err)
			tx, err := g.BeginTx(ctx, nil)
			require.NoError(t, err)
			return g.Commit(ctx, tx)
		},
	} {
		db := newDatabase(t, sqliteWAL)
		f := &faulty{dsnConnector: db.connector.(dsnConnector), commit: func(commit func() error) error { return errors.Join(commit(), io.EOF) }}
		var events []guard.Event
		observe := sqlguard.WithObserver(func(e guard.Event) { events = append(events, e) })
		ctx, _ := db.raised("r", 1, "A")
		require.ErrorIs(t, do(ctx, db.openDB(sqlguard.Wrap(f, sqlguard.SQLite, observe)), observe), guard.ErrCommitUnknown, name)
		require.Len(t, events, 1, name)
		require.Equal(t, guard.EventRefused, events[0].Kind, name)
		require.ErrorIs(t, events[0].Err, guard.ErrCommitUnknown, name)
	}
}
