package pglock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/migrations"
)

func TestEveryCallIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(database(t))
	require.NoError(t, err)
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	dial, trips := servertest.CountTrips()
	config.ConnConfig.DialFunc = dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, b := range []*pglock.Backend{open(t, pool), open(t, pool, pglock.WithRaise())} {
		many := make([]lock.Request, 100)
		for i := range many {
			many[i] = request()
		}
		r := request()
		calls := []func() error{
			func() error { _, err := b.Acquire(t.Context(), r); return err },
			func() error { return b.Renew(t.Context(), r) },
			func() error { return b.Join(t.Context(), r, "m") },
			func() error { return b.Leave(t.Context(), r, "m") },
			func() error { b.RenewAll(t.Context(), many); return nil },
			func() error { _, err := b.Inspect(t.Context(), resource); return err },
			func() error { return b.Release(t.Context(), r) },
			func() error { _, err := b.AcquireInTurn(t.Context(), r, time.Minute); return err },
			func() error { return b.Release(t.Context(), r) },
			func() error { return b.Withdraw(t.Context(), r) },
		}
		var before int64
		for range 2 { // the first time it connects, and prepares the statements
			before = trips.Load()
			r = request()
			for i, call := range calls {
				require.NoError(t, call(), "call %d", i)
			}
		}
		require.EqualValues(t, len(calls), trips.Load()-before)
	}
}

// A contender that is refused writes nothing, however often it asks.
func TestARefusalWritesNothing(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	acquire(t, open(t, pool), request())
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	var writes bool
	_, err = tx.Exec(t.Context(), "select fencing.lease_acquire($1, 'n', '', 1000, 0, 100, 1000)", resource)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(t.Context(), "select pg_current_xact_id_if_assigned() is not null").Scan(&writes))
	require.NoError(t, tx.Rollback(t.Context()))
	require.False(t, writes)
}

// Renewals change no index, and rows that several sessions lock have no multixact,
// of which a database has to be cleaned.
func TestContentionIsCheapForTheServer(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{})
	pool := connect(t, server.URL(""))
	require.NoError(t, migrations.Up(t.Context(), pool))
	b := open(t, pool, pglock.WithRaise())
	multixact := func() string {
		_, err := pool.Exec(t.Context(), "checkpoint")
		require.NoError(t, err)
		return query[string](t, pool, "select next_multixact_id::text from pg_control_checkpoint()")
	}
	before := multixact()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				r := request()
				if _, err := b.Acquire(t.Context(), r); errors.Is(err, lock.ErrHeld) {
					continue
				} else if err != nil {
					t.Error(err)
				}
				for range 5 {
					if err := b.Renew(t.Context(), r); err != nil {
						t.Error(err)
					}
				}
				if err := b.Release(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, before, multixact())
	pool.Reset() // a session reports its statistics when it ends, at the latest
	require.Eventually(t, func() bool {
		return query[bool](t, pool, `select coalesce(n_tup_upd > 0 and n_tup_hot_upd > 0.9 * n_tup_upd, false) from pg_stat_user_tables where relid = 'fencing.lease'::regclass`)
	}, within, 50*time.Millisecond, "renewals are HOT updates")
}
