package pglock_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sequencer"
)

// S39: with synchronous_commit off a crash loses commits that were acknowledged, but
// neither a token nor a lease. The control shows that a crash did lose one.
func TestS39_ACrashForgetsNoLease(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{Settings: map[string]string{"wal_writer_delay": "10s"}})
	setup := connect(t, server.URL(""))
	require.NoError(t, migrations.Up(t.Context(), setup))
	_, err := setup.Exec(t.Context(), "CREATE TABLE control (n bigint)")
	require.NoError(t, err)
	last, lost := guard.Token(0), false
	for try := 0; try < 6 && !lost; try++ {
		careless := connect(t, server.URL(""), "synchronous_commit=off")
		b := open(t, careless)
		r := request()
		token := acquire(t, b, r)
		require.Greater(t, token, last)
		last = token
		_, err = careless.Exec(t.Context(), "INSERT INTO control VALUES ($1)", int64(token))
		require.NoError(t, err)
		require.NoError(t, server.Kill())
		require.NoError(t, server.Restart(t.Context()))

		after := connect(t, server.URL(""))
		b = open(t, after)
		_, err := b.Acquire(t.Context(), request())
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, b.Renew(t.Context(), r))
		require.NoError(t, b.Release(t.Context(), r))
		require.NoError(t, after.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM control WHERE n = $1)", int64(token)).Scan(&lost))
	}
	require.True(t, lost, "no crash lost anything, so this test proves nothing")
}

// The whole lock on a server that stops answering: the loss is on time, and the
// attempt of a waiter that was given up holds nothing afterwards.
func TestLossOnTimeWhilePostgresHangs(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{})
	pool := connect(t, server.URL(""))
	require.NoError(t, migrations.Up(t.Context(), pool))
	l := locker(t, open(t, pool), lock.WithTTL(time.Second))
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	require.NoError(t, server.Pause())
	select {
	case <-s.Lost():
		require.WithinDuration(t, s.Deadline(), time.Now(), 2*time.Second)
	case <-time.After(within):
		t.Fatal("no loss signalled while Postgres hangs")
	}
	require.ErrorIs(t, context.Cause(s.Context()), lock.ErrLost)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = l.Acquire(ctx, resource)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, server.Resume())
	require.ErrorIs(t, s.Release(t.Context()), lock.ErrLost)
	require.Eventually(t, func() bool {
		next, err := l.TryAcquire(t.Context(), resource)
		return err == nil && next.Fence().Token > s.Fence().Token && next.Release(t.Context()) == nil
	}, within, 10*time.Millisecond)
}

func TestARestartOfTheServerIsSurvived(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{})
	pool := connect(t, server.URL(""))
	require.NoError(t, migrations.Up(t.Context(), pool))
	b := open(t, pool)
	l := locker(t, b, lock.WithTTL(time.Minute), lock.WithRenewEvery(50*time.Millisecond))
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	wake := inEffect(t, b)
	require.NoError(t, server.Restart(t.Context()))
	woken(t, wake) // it has come back
	require.NoError(t, s.Release(t.Context()))
	woken(t, wake)
}

func TestAMissingSchemaNamesTheCommand(t *testing.T) {
	t.Parallel()
	for _, b := range []*pglock.Backend{
		open(t, connect(t, servertest.Postgres(t))),
		open(t, connect(t, database(t, migrations.To(3)))),
	} {
		_, err := b.Acquire(t.Context(), request())
		require.ErrorIs(t, err, pglock.ErrSchema)
		require.ErrorContains(t, err, `run "fencectl migrate up"`)
	}
}

// Tables that somebody changed by hand, or restored without their rows.
func TestABrokenSchemaIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	for sql, says := range map[string]string{
		"DROP TABLE fencing.lease":                                         `a table of "fencing" was removed`,
		"DROP TABLE fencing.lease_counter":                                 `a table of "fencing" was removed`,
		"DROP TABLE fencing.lease_queue":                                   `a table of "fencing" was removed`,
		"DROP TABLE fencing.lease_spent":                                   `a table of "fencing" was removed`,
		"ALTER TABLE fencing.lease DROP COLUMN holder":                     `a table of "fencing" was removed or changed`,
		"ALTER TABLE fencing.lease_counter RENAME COLUMN token TO counted": `a table of "fencing" was removed or changed`,
		"TRUNCATE fencing.lease_counter":                                   `lease_counter of "fencing" has lost rows, as by TRUNCATE or a restore without data; Restore`,
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			pool := connect(t, database(t))
			_, err := pool.Exec(t.Context(), sql)
			require.NoError(t, err)
			b := open(t, pool)
			_, acquired := b.Acquire(t.Context(), request())
			_, inTurn := b.AcquireInTurn(t.Context(), request(), time.Second)
			err = errors.Join(acquired, inTurn)
			require.ErrorIs(t, err, pglock.ErrSchema)
			require.NotErrorIs(t, err, sequencer.ErrJump)
			require.ErrorContains(t, err, says)
		})
	}
}

// Only a raise is blocked; what the session's own lock_timeout ends is another matter.
func TestALockTimeoutOfTheSessionIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool, b, r := connect(t, url), open(t, connect(t, url, "lock_timeout=50")), request()
	acquire(t, b, r)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "SELECT FROM fencing.lease FOR UPDATE")
	require.NoError(t, err)
	err = b.Renew(t.Context(), r)
	require.ErrorContains(t, err, "the lock_timeout of the session")
	require.NotErrorIs(t, err, guard.ErrBlocked)
}

func TestARoleWithoutRightsIsToldWhichItNeeds(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := connect(t, url)
	_, err := pool.Exec(t.Context(), "REVOKE USAGE ON SCHEMA fencing FROM PUBLIC")
	require.NoError(t, err)
	role := "lease_" + strings.ToLower(t.Name())
	_, err = pool.Exec(t.Context(), "CREATE ROLE "+pgx.Identifier{role}.Sanitize())
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP ROLE "+pgx.Identifier{role}.Sanitize()) })
	_, err = open(t, connect(t, url, "role="+role)).Acquire(t.Context(), request())
	require.ErrorIs(t, err, pglock.ErrSchema)
	require.ErrorContains(t, err, "grant it USAGE")
}

func TestAReadOnlyServerIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	b := open(t, connect(t, database(t), "default_transaction_read_only=on"))
	_, err := b.Acquire(t.Context(), request())
	require.ErrorContains(t, err, "connect to the primary")
}

func TestAStandbyIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{})
	setup := connect(t, server.URL(""))
	require.NoError(t, migrations.Up(t.Context(), setup))
	setup.Close()
	require.NoError(t, os.WriteFile(filepath.Join(server.Dir(), "data", "standby.signal"), nil, 0o644))
	require.NoError(t, server.Restart(t.Context()))
	b, r := open(t, connect(t, server.URL(""))), request()
	_, acquired := b.Acquire(t.Context(), r)
	_, inTurn := b.AcquireInTurn(t.Context(), r, time.Minute)
	for _, err := range []error{acquired, inTurn, b.Withdraw(t.Context(), r), b.Renew(t.Context(), r), b.Join(t.Context(), r, "m"), b.Release(t.Context(), r)} {
		require.ErrorContains(t, err, "connect to the primary")
	}
	_, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
}

func TestAClosedPoolIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	pool.Close()
	_, err := open(t, pool).Acquire(t.Context(), request())
	require.ErrorContains(t, err, "closed pool")
}

func TestAWrongPasswordStaysSecret(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(servertest.Postgres(t))
	require.NoError(t, err)
	u.User = url.UserPassword("nobody_at_all", "wr0ng-secret")
	_, err = open(t, connect(t, u.String())).Acquire(t.Context(), request())
	require.ErrorContains(t, err, "nobody_at_all")
	require.NotContains(t, err.Error(), "wr0ng-secret")
}
