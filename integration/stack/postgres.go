package stack

import (
	"context"
	"crypto/rand"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// testPassword is for servers that insist on one.
var testPassword = rand.Text()

// A Postgres is a Postgres server.
type Postgres struct{ server }

// SharedPostgres returns the server that the tests share, for those that do not
// break it.
func SharedPostgres(t testing.TB) *Postgres {
	t.Helper()
	need(t)
	return &Postgres{server{t, servers.postgres}}
}

// NewPostgres starts a server of its own, with entries of postgresql.conf of the
// form name=value.
func NewPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	all := make(map[string]string)
	for _, s := range settings {
		name, value, found := strings.Cut(s, "=")
		require.True(t, found, s)
		all[name] = value
	}
	return &Postgres{own(t, func(ctx context.Context) (machine, error) { return servers.startPostgres(ctx, all) })}
}

// NewDatabase makes a database that is dropped at the end of the test, and returns
// its URL, as a superuser.
func (p *Postgres) NewDatabase() string {
	p.Helper()
	name := "fencing_" + strings.ToLower(rand.Text())
	p.execute(p.Context(), "CREATE DATABASE "+name)
	p.Cleanup(func() {
		if p.machine == servers.postgres { // others end with their data
			p.execute(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		}
	})
	return postgresURL(p.machine, name)
}

// Pool returns a pool on a database that tests use to look, and to interfere.
func (p *Postgres) Pool(url string) *pgxpool.Pool {
	p.Helper()
	pool, err := pgxpool.New(p.Context(), url)
	require.NoError(p, err)
	p.Cleanup(pool.Close)
	return pool
}

func (p *Postgres) execute(ctx context.Context, sql string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	conn, err := pgx.Connect(ctx, postgresURL(p.machine, "postgres"))
	require.NoError(p, err)
	defer func() { _ = conn.Close(ctx) }() // the statement has its own error
	_, err = conn.Exec(ctx, sql)
	require.NoError(p, err, sql)
}

// Via returns the URL of the same database at another address, such as that of a
// link.
func Via(t testing.TB, database, addr string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.Host = addr
	return u.String()
}

func postgresURL(m machine, database string) string {
	u := url.URL{Scheme: "postgres", Host: m.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	name, password := m.user()
	u.User = url.User(name)
	if password != "" {
		u.User = url.UserPassword(name, password)
	}
	return u.String()
}

// postgresSettings adds to settings what the checks of a history need. fsync makes
// no difference when only the server dies: what it has written is in the hands of
// the operating system.
func postgresSettings(settings map[string]string) map[string]string {
	all := map[string]string{"track_commit_timestamp": "on", "fsync": "off"}
	maps.Copy(all, settings)
	return all
}

func postgresAnswers(ctx context.Context, m machine) error {
	_, err := askPostgres(ctx, m)
	return err
}

func askPostgres(ctx context.Context, m machine) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, postgresURL(m, "postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }() // after a probe there is nothing to lose
	err = conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&version)
	return version, err
}
