// Package servertest gives tests real Postgres, Redis, MariaDB, etcd, ZooKeeper and
// PgBouncer servers: those that FENCING_TEST_POSTGRES_URL, FENCING_TEST_REDIS_URL,
// FENCING_TEST_MYSQL_DSN, FENCING_TEST_ETCD_URLS and FENCING_TEST_ZOOKEEPER_SERVERS
// name, else child processes from the machine's own binaries. Where there is neither, the test is skipped with the
// reason, or fails if CI=true.
package servertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/internal/localserver"
)

// The variables that name servers to use in place of child processes. A Postgres
// URL needs a superuser, or one who may create databases.
const (
	PostgresEnv  = "FENCING_TEST_POSTGRES_URL"
	RedisEnv     = "FENCING_TEST_REDIS_URL"
	MySQLEnv     = "FENCING_TEST_MYSQL_DSN"         // as go-sql-driver/mysql reads it
	EtcdEnv      = "FENCING_TEST_ETCD_URLS"         // separated by commas
	ZooKeeperEnv = "FENCING_TEST_ZOOKEEPER_SERVERS" // separated by commas; they must grant sessions of 80s
)

const timeout = 90 * time.Second // to start a server, or to make or drop a database

// A shared server is started by the first test that needs it.
type shared[S interface{ Stop() error }] struct {
	once   sync.Once
	server S
	url    string
	err    error
}

func (s *shared[S]) get(env string, start func(context.Context) (S, string, error)) (string, error) {
	s.once.Do(func() {
		if s.url = os.Getenv(env); s.url != "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		s.server, s.url, s.err = start(ctx)
	})
	return s.url, s.err
}

var (
	postgres  shared[*localserver.Postgres]
	durable   shared[*localserver.Postgres]
	redis     shared[*localserver.Redis]
	mariadb   shared[*localserver.MariaDB]
	flushing  shared[*localserver.MariaDB]
	etcd      shared[*localserver.EtcdCluster]
	zookeeper shared[*localserver.ZooKeeperEnsemble]
)

// Main runs the tests of a package, cleans up after them, stops the servers that
// they shared, and exits. Call it from TestMain.
func Main(m *testing.M, cleanUp ...func() error) {
	code := m.Run()
	for _, f := range cleanUp {
		code = max(code, stopped(f()))
	}
	for _, s := range []*localserver.Postgres{postgres.server, durable.server} {
		if s != nil {
			code = max(code, stopped(s.Stop()))
		}
	}
	if s := redis.server; s != nil {
		code = max(code, stopped(s.Stop()))
	}
	for _, s := range []*localserver.MariaDB{mariadb.server, flushing.server} {
		if s != nil {
			code = max(code, stopped(s.Stop()))
		}
	}
	if s := etcd.server; s != nil {
		code = max(code, stopped(s.Stop()))
	}
	if s := zookeeper.server; s != nil {
		code = max(code, stopped(s.Stop()))
	}
	os.Exit(code)
}

func stopped(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "servertest:", err)
	return 1
}

// Postgres returns the URL of a fresh database of its own on the server that the
// test process shares, as a superuser. It is dropped, connections and all, at the
// end of the test.
//
// Where that is a child process, it waits for the disk in benchmarks only. A test
// could not tell before the machine itself crashes, and would wait for most of its
// time.
func Postgres(t testing.TB) string {
	t.Helper()
	shared, settings := &postgres, map[string]string{"fsync": "off", "full_page_writes": "off"}
	if _, measures := t.(*testing.B); measures {
		shared, settings = &durable, nil
	}
	server, err := shared.get(PostgresEnv, func(ctx context.Context) (*localserver.Postgres, string, error) {
		s, err := localserver.StartPostgres(ctx, localserver.PostgresOptions{Settings: settings})
		if err != nil {
			return nil, "", err
		}
		return s, s.URL(""), nil
	})
	require(t, err)
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		t.Fatalf("servertest: %s is not a URL of the form postgres://user@host:port/database", PostgresEnv) // not err: it may quote a password
	}
	name := "fencing_" + strings.ToLower(rand.Text())
	execute(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	return u.String()
}

// execute does not use t.Context, which has ended when a cleanup runs.
func execute(t testing.TB, server, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }() // the statement below has its own error
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("servertest: %s: %v", sql, err)
	}
}

// Redis returns the URL of the Redis that the test process shares. Isolate tests
// from each other by a prefix of the keys.
func Redis(t testing.TB) string {
	t.Helper()
	server, err := redis.get(RedisEnv, func(ctx context.Context) (*localserver.Redis, string, error) {
		s, err := localserver.StartRedis(ctx, localserver.RedisOptions{})
		if err != nil {
			return nil, "", err
		}
		return s, s.URL(), nil
	})
	require(t, err)
	return server
}

// NewPostgres starts a server of its own, for a test that breaks it. It is stopped
// at the end of the test.
func NewPostgres(t testing.TB, o localserver.PostgresOptions) *localserver.Postgres {
	t.Helper()
	s, err := localserver.StartPostgres(t.Context(), o)
	require(t, err)
	stopAtEnd(t, s.Stop)
	return s
}

// NewRedis starts a server of its own, for a test that breaks it. It is stopped at
// the end of the test.
func NewRedis(t testing.TB, o localserver.RedisOptions) *localserver.Redis {
	t.Helper()
	s, err := localserver.StartRedis(t.Context(), o)
	require(t, err)
	stopAtEnd(t, s.Stop)
	return s
}

// NewRedisCluster starts a cluster of its own. It is stopped at the end of the test.
func NewRedisCluster(t testing.TB, masters, replicas int) *localserver.RedisCluster {
	t.Helper()
	c, err := localserver.StartRedisCluster(t.Context(), masters, replicas, localserver.RedisOptions{})
	require(t, err)
	stopAtEnd(t, c.Stop)
	return c
}

// NewRedisSentinel starts a Redis of its own with replicas and sentinels. They are
// stopped at the end of the test.
func NewRedisSentinel(t testing.TB, replicas, sentinels int) *localserver.RedisSentinel {
	t.Helper()
	s, err := localserver.StartRedisSentinel(t.Context(), replicas, sentinels, localserver.RedisOptions{})
	require(t, err)
	stopAtEnd(t, s.Stop)
	return s
}

// PgBouncer starts a PgBouncer in transaction mode in front of the database that
// postgresURL names, and returns the URL of the same database through it. Old
// versions do not follow prepared statements: use an exec mode without them.
func PgBouncer(t testing.TB, postgresURL string) string {
	t.Helper()
	s, err := localserver.StartPgBouncer(t.Context(), postgresURL)
	require(t, err)
	stopAtEnd(t, s.Stop)
	return s.URL()
}

func stopAtEnd(t testing.TB, stop func() error) {
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("servertest: %v", err)
		}
	})
}

// require skips a test for want of a server, except in CI, where a skipped test
// would look like a passed one.
func require(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, localserver.ErrNotInstalled) && os.Getenv("CI") != "true":
		t.Skipf("servertest: %v", err)
	default:
		t.Fatalf("servertest: %v", err)
	}
}
