package localserver_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/internal/localserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		startAndWaitForDeath()
	}
	goleak.VerifyTestMain(m)
}

func startPostgres(t *testing.T, o localserver.PostgresOptions) *localserver.Postgres {
	t.Helper()
	s, err := localserver.StartPostgres(t.Context(), o)
	skipUnlessInstalled(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func startRedis(t *testing.T, o localserver.RedisOptions) *localserver.Redis {
	t.Helper()
	s, err := localserver.StartRedis(t.Context(), o)
	skipUnlessInstalled(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func skipUnlessInstalled(t *testing.T, err error) {
	t.Helper()
	if err != nil && os.Getenv("CI") != "true" {
		require.ErrorIs(t, err, localserver.ErrNotInstalled)
		t.Skip(err)
	}
	require.NoError(t, err)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func show(t *testing.T, conn *pgx.Conn, setting string) (value string) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&value))
	return value
}

func TestPostgresIsDurableAndTakesSettings(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, localserver.PostgresOptions{Settings: map[string]string{"max_connections": "17", "log_line_prefix": "it's %p "}})
	conn := connect(t, s.URL(""))
	require.Equal(t, "on", show(t, conn, "fsync"))
	require.Equal(t, "17", show(t, conn, "max_connections"))
	require.Equal(t, "it's %p ", show(t, conn, "log_line_prefix"))
	require.Equal(t, "127.0.0.1", show(t, conn, "listen_addresses"))
	var super bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT usesuper FROM pg_user WHERE usename = current_user").Scan(&super))
	require.True(t, super)
}

func TestPostgresKeepsItsDataAndPortOverACrash(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, localserver.PostgresOptions{})
	conn := connect(t, s.URL(""))
	_, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n")
	require.NoError(t, err)
	busy := connect(t, s.URL("")) // a backend that does not notice its postmaster's death
	go func() { _, _ = busy.Exec(context.Background(), "SELECT count(*) FROM generate_series(1, 1000000000)") }()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND state = 'active' AND pid <> pg_backend_pid()").Scan(&n))
		return n == 1
	}, 10*time.Second, 10*time.Millisecond)

	url, dir, pid := s.URL(""), s.Dir(), s.PID()
	require.NoError(t, s.Kill())
	require.Zero(t, s.PID())
	require.Error(t, conn.Ping(t.Context()))
	require.Error(t, s.Kill(), "there is nothing left to kill")
	require.NoError(t, s.Restart(t.Context()))
	require.Equal(t, url, s.URL(""))
	require.Equal(t, dir, s.Dir())
	require.NotEqual(t, pid, s.PID())

	var n int
	require.NoError(t, connect(t, s.URL("")).QueryRow(t.Context(), "SELECT n FROM kept").Scan(&n))
	require.Equal(t, 42, n)
}

func TestPostgresRestartsWhileItRuns(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, localserver.PostgresOptions{})
	pid := s.PID()
	require.NoError(t, s.Restart(t.Context()))
	require.NotEqual(t, pid, s.PID())
	require.NoError(t, connect(t, s.URL("")).Ping(t.Context()))
}

func TestPausedPostgresAnswersNobodyUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, localserver.PostgresOptions{})
	conn := connect(t, s.URL(""))
	require.NoError(t, s.Pause())
	// A backend that was forked before the pause is paused as well.
	answer := make(chan error, 1)
	go func() { answer <- conn.Ping(context.Background()) }()
	select {
	case err := <-answer:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(300 * time.Millisecond): // that nothing happens has no condition to wait on
	}
	require.NoError(t, s.Resume())
	require.NoError(t, <-answer)
}

func TestPausedPostgresCanBeKilledAndStopped(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, localserver.PostgresOptions{})
	connect(t, s.URL(""))
	require.NoError(t, s.Pause())
	require.NoError(t, s.Kill())
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Pause())
	require.NoError(t, s.Stop())
}

func TestStopRemovesTheDirectoryAndIsFinal(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]interface {
		Dir() string
		Addr() string
		Stop() error
		Restart(context.Context) error
	}{
		"postgres": startPostgres(t, localserver.PostgresOptions{}),
		"redis":    startRedis(t, localserver.RedisOptions{}),
	} {
		t.Run(name, func(t *testing.T) {
			require.DirExists(t, s.Dir())
			require.NoError(t, s.Stop())
			require.NoDirExists(t, s.Dir())
			_, err := net.Dial("tcp", s.Addr())
			require.Error(t, err)
			require.NoError(t, s.Stop())
			require.ErrorContains(t, s.Restart(t.Context()), "stopped")
		})
	}
}

func TestRedisKeepsNothingUnlessToldTo(t *testing.T) {
	t.Parallel()
	forgetful := startRedis(t, localserver.RedisOptions{})
	require.NoError(t, client(t, forgetful.URL()).Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, forgetful.Restart(t.Context()))
	require.ErrorIs(t, client(t, forgetful.URL()).Get(t.Context(), "k").Err(), redis.Nil)

	durable := startRedis(t, localserver.RedisOptions{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	require.NoError(t, client(t, durable.URL()).Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, durable.Kill())
	require.NoError(t, durable.Restart(t.Context()))
	require.Equal(t, "v", client(t, durable.URL()).Get(t.Context(), "k").Val())
}

func TestRedisCanDemandAPassword(t *testing.T) {
	t.Parallel()
	s := startRedis(t, localserver.RedisOptions{Args: []string{"--requirepass", "right"}})
	require.ErrorContains(t, client(t, s.URL()).Ping(t.Context()).Err(), "NOAUTH")
}

func TestPausedRedisAnswersNobodyUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s := startRedis(t, localserver.RedisOptions{})
	rdb := client(t, s.URL())
	require.NoError(t, rdb.Ping(t.Context()).Err())
	require.NoError(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, rdb.Ping(ctx).Err())
	require.NoError(t, s.Resume())
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

func TestAFailedStartShowsTheServersOwnWords(t *testing.T) {
	t.Parallel()
	_, err := localserver.StartRedis(t.Context(), localserver.RedisOptions{Args: []string{"--maxmemory-policy", "nonsense"}})
	skipUnlessKnown(t, err)
	require.ErrorContains(t, err, "maxmemory-policy")

	_, err = localserver.StartPostgres(t.Context(), localserver.PostgresOptions{Settings: map[string]string{"nonsense_setting": "1"}})
	skipUnlessKnown(t, err)
	require.ErrorContains(t, err, "nonsense_setting")
}

func skipUnlessKnown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	if os.Getenv("CI") != "true" {
		skipUnlessInstalled(t, nil)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := localserver.StartPostgres(ctx, localserver.PostgresOptions{})
	require.Error(t, err)
	_, err = localserver.StartRedis(ctx, localserver.RedisOptions{})
	require.Error(t, err)
}

func TestAMissingServerIsToldWithTheWayToGetIt(t *testing.T) {
	t.Parallel()
	_, err := localserver.FindTool("no-such-server", "its-package", "its-formula")
	require.ErrorIs(t, err, localserver.ErrNotInstalled)
	require.ErrorContains(t, err, `"apt-get install its-package"`)
}

func TestTheNewestPostgresIsTaken(t *testing.T) {
	t.Parallel()
	for dir, version := range map[string]int{
		"/usr/lib/postgresql/9.6/bin":           9,
		"/usr/lib/postgresql/17/bin":            17,
		"/opt/homebrew/opt/postgresql@16/bin":   16,
		"/usr/pgsql-15/bin":                     15,
		"/usr/local/pgsql/bin":                  0,
		"/Applications/Versions/latest/bin":     0,
		"/Applications/Postgres.app/V/16.3/bin": 16,
	} {
		require.Equal(t, version, localserver.Version(dir), dir)
	}
}

func TestAFailedPgBouncerKeepsThePasswordToItself(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := localserver.StartPgBouncer(ctx, "postgres://u:secret@127.0.0.1:1/d")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	_, err = localserver.StartPgBouncer(ctx, "postgres://u:secret@127.0.0.1:port/d")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestPgBouncerSharesServerConnectionsPerTransaction(t *testing.T) {
	t.Parallel()
	pg := startPostgres(t, localserver.PostgresOptions{})
	b, err := localserver.StartPgBouncer(t.Context(), pg.URL(""))
	skipUnlessInstalled(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })
	u, err := url.Parse(b.URL())
	require.NoError(t, err)
	q := u.Query()
	q.Set("default_query_exec_mode", "exec")
	u.RawQuery = q.Encode()
	first, second := connect(t, u.String()), connect(t, u.String())
	var one, two int
	require.NoError(t, first.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&one))
	require.NoError(t, second.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&two))
	require.Equal(t, one, two, "transaction pooling gives two idle clients one backend")
}
