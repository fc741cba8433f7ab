package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

// The halves of a password, with something in the middle that is not allowed there.
const (
	half1 = "hunter2"
	half2 = "correcthorse"
)

func requireSecret(t *testing.T, r result, what string) {
	t.Helper()
	for _, half := range []string{half1, half2} {
		require.NotContains(t, r.stdout+r.stderr, half, what)
	}
}

// The parsers of net/url, pgx and go-redis quote what they do not understand. Many
// more forms are in the tests of package target.
func TestAPasswordInAMalformedAddressIsNeverPrinted(t *testing.T) {
	t.Parallel()
	for _, middle := range []string{"/", "?", "#", "@", "%", "%zz", ":", " ", "[", "]", "'", `"`, `\`, "\n", "://", "=", "&", ";", "é"} {
		t.Run(middle, func(t *testing.T) {
			t.Parallel()
			program, err := built()
			require.NoError(t, err)
			password := half1 + middle + half2
			for _, c := range []call{
				{args: []string{"migrate", "status", "--postgres", "postgres://app:" + password + "@127.0.0.1:1/shop"}},
				{args: []string{"migrate", "status", "--postgres=host=127.0.0.1 port=1 password=" + password + " user=app"}},
				{args: []string{"migrate", "status"}, env: []string{"FENCING_POSTGRES_URL=postgres://127.0.0.1:1/shop?password=" + password + "&sslmode=bogus"}},
				{args: []string{"demo", "--redis", "redis://:" + password + "@127.0.0.1:1/0"}},
				{args: []string{"demo"}, env: []string{"FENCING_REDIS_URL=rediss://app:12" + middle + half2 + "@127.0.0.1:1/x"}},
			} {
				c.program = program
				r := c.run(t)
				require.Contains(t, []int{2, 3}, r.code, "%v", c)
				requireSecret(t, r, strings.Join(append(c.args, c.env...), " "))
			}
		})
	}
}

// An address in the wrong place is quoted by the parser of the arguments.
func TestAPasswordInTheWrongPlaceIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const address = "postgres://app:" + half1 + "@127.0.0.1:1/shop"
	for _, args := range [][]string{
		{address},
		{"migrate", address},
		{"migrate", "up", address},
		{"migrate", "up", "--to", address},
		{"migrate", "up", "--json=" + address},
		{"migrate", "print", "--tool", address},
		{"migrate", "up", "--schema", address, "--postgres", address},
		{"migrate", "up", "--postgress", address},
		{"migrate", "up", "--" + address},
		{"protect", address, "--resource=x"},
		{"protect", "inventory", "--resource", address, "--trigger", "--postgres", address},
		{"demo", address},
		{"help", address},
		{"help", "migrate", address},
		{"completion", address},
		{"rebase", address, "--postgres", "postgres://app@127.0.0.1:1/shop"},
		{"ls", "redis://" + half1 + "@127.0.0.1:1", "--postgres", "postgres://app@127.0.0.1:1/shop"},
		{"run", address, "--postgres", "postgres://app@127.0.0.1:1/shop", "--", "true"},
		{"demo", "--redis", address},
		{"migrate", "up", "password=" + half1},
	} {
		r := run(t, args...)
		require.Contains(t, []int{2, 3}, r.code, "%v: %s", args, r.stdout)
		requireSecret(t, r, strings.Join(args, " "))
	}
}

func TestWrongPasswordForPostgres(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{})
	admin := connect(t, server.URL(""))
	role := newRole(t, admin, "right-one")
	hba := filepath.Join(server.Dir(), "data", "pg_hba.conf")
	rules, err := os.ReadFile(hba)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(hba, append([]byte("host all "+role+" all scram-sha-256\n"), rules...), 0o600))
	admin.exec(t, "SELECT pg_reload_conf()")
	wrong := as(t, server.URL(""), role, half1)
	require.Eventually(t, func() bool { // the server reads its rules in its own time
		conn, err := pgx.Connect(t.Context(), wrong)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err != nil
	}, waiting, polling)

	for _, address := range []string{wrong, "host=127.0.0.1 port=" + strings.Split(server.Addr(), ":")[1] + " dbname=postgres user=" + role + " password=" + half1} {
		for _, args := range [][]string{{"migrate", "status"}, {"demo"}, {"protect", "inventory", "--resource=x"}} {
			r := fails(t, 3, "password authentication failed", append(args, "--postgres", address)...)
			require.Contains(t, r.stderr, "check user and password")
			require.Contains(t, r.stderr, role+"@"+server.Addr()+"/postgres")
			requireSecret(t, r, address)
		}
	}
	fails(t, 1, "not installed", "migrate", "status", "--postgres", as(t, server.URL(""), role, "right-one"))
}

func TestWrongPasswordForRedis(t *testing.T) {
	t.Parallel()
	server := servertest.NewRedis(t, localserver.RedisOptions{})
	o, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", "right-one").Err())
	r := fails(t, 3, "WRONGPASS", "demo", "--redis", "redis://:"+half1+"@"+server.Addr())
	requireSecret(t, r, "wrong password")
	require.Contains(t, r.stderr, "check user and password")
	r = fails(t, 3, "NOAUTH", "demo", "--redis", server.URL())
	require.Contains(t, r.stderr, "a password alone with a colon before it")
}
