package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func query[T any](t testing.TB, url, sql string, args ...any) (value T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	require.NoError(t, conn.QueryRow(ctx, sql, args...).Scan(&value))
	return value
}

func TestEachTestHasAPostgresDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	mine, other := servertest.Postgres(t), servertest.Postgres(t)
	name := query[string](t, mine, "SELECT current_database()")
	require.NotEqual(t, name, query[string](t, other, "SELECT current_database()"))
	const system = "SELECT system_identifier::text FROM pg_control_system()"
	require.Equal(t, query[string](t, mine, system), query[string](t, other, system), "the test process shares one server")
}

func TestOnlyBenchmarksWaitForTheDisk(t *testing.T) {
	t.Parallel()
	if os.Getenv(servertest.PostgresEnv) != "" {
		return // what that server does is not for us to say
	}
	const fsync = "SELECT current_setting('fsync')"
	require.Equal(t, "off", query[string](t, servertest.Postgres(t), fsync))
	var measured string
	testing.Benchmark(func(b *testing.B) { measured = query[string](b, servertest.Postgres(b), fsync) })
	require.Equal(t, "on", measured)
}

func TestDatabaseIsDroppedAtTheEndOfItsTestThoughItIsInUse(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("user", func(t *testing.T) {
		url := servertest.Postgres(t)
		name = query[string](t, url, "SELECT current_database()")
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "BEGIN")
		require.NoError(t, err)
	})
	require.False(t, query[bool](t, servertest.Postgres(t), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name))
}

func TestRedisIsSharedAndAnswers(t *testing.T) {
	t.Parallel()
	require.Equal(t, servertest.Redis(t), servertest.Redis(t))
	o, err := redis.ParseURL(servertest.Redis(t))
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	defer func() { require.NoError(t, rdb.Close()) }()
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

func TestServersOfTheirOwnEndWithTheirTest(t *testing.T) {
	t.Parallel()
	var dirs []string
	t.Run("user", func(t *testing.T) {
		pg := servertest.NewPostgres(t, localserver.PostgresOptions{})
		rdb := servertest.NewRedis(t, localserver.RedisOptions{})
		require.NotEqual(t, servertest.Postgres(t), pg.URL(""))
		require.NotEqual(t, servertest.Redis(t), rdb.URL())
		dirs = []string{pg.Dir(), rdb.Dir()}
	})
	for _, dir := range dirs {
		require.NoDirExists(t, dir)
	}
}

func TestPgBouncerLeadsToTheSameDatabase(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	through := servertest.PgBouncer(t, url)
	require.NotEqual(t, url, through)
	require.Equal(t, query[string](t, url, "SELECT current_database()"), query[string](t, through, "SELECT current_database()"))
}

// A recorder is a test that only notes how it was ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.ended = "skipped" }
func (r *recorder) Fatalf(string, ...any) { r.ended = "failed" }

func TestOnlyAMissingServerOutsideCISkips(t *testing.T) {
	missing := fmt.Errorf("redis-server is %w", localserver.ErrNotInstalled)
	for _, c := range []struct {
		ci   string
		err  error
		want string
	}{
		{"", nil, ""},
		{"", missing, "skipped"},
		{"true", missing, "failed"},
		{"", errors.New("broken"), "failed"},
	} {
		t.Setenv("CI", c.ci)
		r := &recorder{}
		servertest.Require(r, c.err)
		require.Equal(t, c.want, r.ended, "CI=%q, error %v", c.ci, c.err)
	}
}

const namedEnv = "FENCING_SERVERTEST_NAMED"

// Run by the next test in a process of its own.
func TestServersNamed(t *testing.T) {
	if os.Getenv(namedEnv) == "" {
		return
	}
	require.Equal(t, os.Getenv(servertest.RedisEnv), servertest.Redis(t))
	u, err := url.Parse(servertest.Postgres(t))
	require.NoError(t, err)
	named, err := url.Parse(os.Getenv(servertest.PostgresEnv))
	require.NoError(t, err)
	require.Equal(t, named.Host, u.Host)
	require.NotEqual(t, named.Path, u.Path)
}

func TestServersNamedByTheEnvironmentAreUsedAndLeftRunning(t *testing.T) {
	t.Parallel()
	pg := servertest.NewPostgres(t, localserver.PostgresOptions{})
	rdb := servertest.NewRedis(t, localserver.RedisOptions{})
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersNamed$", "-test.v")
	cmd.Env = append(os.Environ(), namedEnv+"=1", servertest.PostgresEnv+"="+pg.URL(""), servertest.RedisEnv+"="+rdb.URL())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS: TestServersNamed")
	require.EqualValues(t, 1, query[int](t, pg.URL(""), "SELECT count(*) FROM pg_database WHERE datname NOT LIKE 'template%'"), "the database is dropped")
	require.NotZero(t, rdb.PID())
}
