package target_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

func TestParsePostgres(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"postgres://app@db.example:6543/shop":                       "postgres://app@db.example:6543/shop",
		"postgres://app:hunter2@db.example/shop":                    "postgres://app@db.example:5432/shop",
		"postgresql://app:hunter2%2Fx@[::1]:1/shop?sslmode=disable": "postgres://app@[::1]:1/shop",
		"host=db.example user=app password='hunter2 x' dbname=shop": "postgres://app@db.example:5432/shop",
		"host=/var/run/postgresql user=app":                         "postgres://app@/var/run/postgresql/app",
		"postgres://app@db.example/shop?pool_max_conns=3":           "postgres://app@db.example:5432/shop",
	} {
		p, err := target.ParsePostgres(target.Setting{Source: "--postgres", Value: value})
		require.NoError(t, err, value)
		require.Equal(t, want, p.String())
		require.Equal(t, "fencectl", p.Config.ConnConfig.RuntimeParams["application_name"])
	}
}

func TestParseRedis(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"redis://cache.example":                   "redis://cache.example:6379/0",
		"redis://:hunter2@cache.example:1/3":      "redis://cache.example:1/3",
		"redis://hunter2@cache.example":           "redis://cache.example:6379/0",
		"rediss://app:hunter2@cache.example/0":    "rediss://cache.example:6379/0",
		"unix://app:hunter2@/run/redis.sock?db=1": "unix:///run/redis.sock",
	} {
		r, err := target.ParseRedis(target.Setting{Source: "--redis", Value: value})
		require.NoError(t, err, value)
		require.Equal(t, want, r.String())
	}
}

func TestErrorsNameTheSourceAndTheWayOut(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"":                                "no Postgres given; name one with --postgres",
		"shop":                            "X: this is not a URL; write postgres://user@host:port/database",
		"mysql://app@db/shop":             "X: a mysql URL where one of postgres, postgresql is needed; write postgres://",
		"postgres://app:a/b@db/shop":      "X: this postgres URL has a port that is no number (in a user or a password write @ as %40, / as %2F",
		"postgres://app:12/b@db/shop":     "X: this postgres URL has an @ too many",
		"postgres://app:a@b@db/shop":      "X: this postgres URL has an @ too many",
		"postgres://app:a%b@db/shop":      "X: this postgres URL has a % that two hexadecimal digits should follow",
		"postgres://app:a b@db/shop":      "X: this postgres URL cannot be taken apart",
		"postgres://app:p@db/x?sslmode=y": "X postgres://app@db/x?sslmode=y: failed to configure TLS (sslmode is invalid)",
		"host=db port=many":               "X: invalid port",
		"host=db password='a":             "X: this is not a connection string",
		"host=db nonsense":                "X: this is not a connection string",
	} {
		_, err := target.ParsePostgres(target.Setting{Source: "X", Value: value})
		require.ErrorIs(t, err, target.ErrInvalid, value)
		require.Contains(t, err.Error(), want)
	}
	_, err := target.ParseRedis(target.Setting{Source: "X", Value: "redis://:p@h/1?password=p&db=x#p"})
	require.ErrorIs(t, err, target.ErrInvalid)
	require.Contains(t, err.Error(), "X redis://h/1?xxxxx: redis:")
	_, err = target.ParseRedis(target.Setting{})
	require.ErrorContains(t, err, "no Redis given")
}

func TestHide(t *testing.T) {
	t.Parallel()
	for value, c := range map[string]struct{ text, want string }{
		"postgres://app:hunter2@db/shop":         {"lookup hunter2: no such host db", "lookup xxxxx: no such host db"},
		"--postgres=postgres://app:hunter2@db/x": {`parse "postgres://app:hunter2@db/x": bad`, `parse "postgres://xxxxx": bad`},
		"postgres://app:hunt%2Fer2@db/shop":      {"hunt/er2 hunt%2Fer2", "xxxxx xxxxx"},
		"host=db password='hunt er2'":            {"x hunt er2 y", "x xxxxx y"},
		"postgres://db/x?sslpassword=hunter2":    {"hunter2", "xxxxx"},
		"redis://hunter2@cache":                  {"AUTH hunter2", "AUTH xxxxx"},
		// What stands beside the password is no secret, even if it is the same.
		"postgres://postgres:postgres@postgres/postgres": {"user=postgres database=postgres", "user=postgres database=postgres"},
		"postgres://app@db/shop":                         {"postgres://app@db/shop app", "postgres://app@db/shop app"},
		// Not among the values at all.
		"": {`cannot parse postgres://app:hun"ter2@db and redis://:hunter2@cache`, `cannot parse postgres://app:xxxxx@db and redis://:xxxxx@cache`},
	} {
		require.Equal(t, c.want, target.NewSecrets("demo", value).Hide(c.text), value)
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a; b", target.OneLine("a\n\n\tb\na\n"))
	require.Equal(t, `h\x1b[2Jé; \u202e\u009b1m\x7f\xff\tx`, target.OneLine("h\x1b[2Jé\n\u202e\u009b1m\x7f\xff\tx\r\n"), "what a terminal obeys")
}

// FuzzAddressesKeepTheirSecret puts a secret into the middle of a password: it must
// not appear, however the rest takes the address apart.
func FuzzAddressesKeepTheirSecret(f *testing.F) {
	for _, middle := range []string{"", "/", "?", "#", "@", "%", ":", " ", "[", "1/", "1?", "1#", "x@h/?password=", "\\", "'", "&", "://"} {
		f.Add(middle, "")
		f.Add("a"+middle, middle+"b")
		f.Add("12"+middle, "@")
	}
	const secret = "zqxjkvzq"
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, form := range []string{"postgres://app:%s@127.0.0.1:1/shop", "redis://app:%s@127.0.0.1:1/0", "redis://%s@127.0.0.1:1/x", "postgres://127.0.0.1:1/shop?sslmode=x&password=%s"} {
			value := fmt.Sprintf(form, before+secret+after)
			var err error
			if strings.HasPrefix(form, "redis") {
				var r *target.Redis
				if r, err = target.ParseRedis(target.Setting{Source: "--redis", Value: value}); err == nil {
					err = errors.New(r.String())
				}
			} else {
				var p *target.Postgres
				if p, err = target.ParsePostgres(target.Setting{Source: "--postgres", Value: value}); err == nil {
					err = errors.New(p.String())
				}
			}
			require.NotContains(t, err.Error(), secret, value)
		}
	})
}
