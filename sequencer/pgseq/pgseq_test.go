package pgseq_test

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sequencer"
	"github.com/go-fencing/fencing/sequencer/pgseq"
	"github.com/go-fencing/fencing/sequencer/sequencertest"
)

const resource = "inventory:sku-42"

func TestMain(m *testing.M) { servertest.Main(m) }

// connect returns a pool on url, with settings as parameters of its sessions.
func connect(t testing.TB, url string, settings ...string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		config.ConnConfig.RuntimeParams[name] = value
	}
	return connectWith(t, config)
}

func connectWith(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// database returns the URL of a fresh database with the fence schema.
func database(t testing.TB, opts ...migrations.Option) string {
	t.Helper()
	url := servertest.Postgres(t)
	require.NoError(t, migrations.Up(t.Context(), connect(t, url), opts...))
	return url
}

func open(t testing.TB, pool *pgxpool.Pool, opts ...pgseq.Option) *pgseq.Sequencer {
	t.Helper()
	s, err := pgseq.New(pool, opts...)
	require.NoError(t, err)
	return s
}

func next(t testing.TB, s *pgseq.Sequencer, after guard.Token) guard.Token {
	t.Helper()
	token, err := s.Next(t.Context(), resource, after)
	require.NoError(t, err)
	return token
}

func TestSequencer(t *testing.T) {
	t.Parallel()
	// One database for all: what makes a sequencer fresh is an empty schema.
	url := servertest.Postgres(t)
	pool := connect(t, url)
	sequencertest.Run(t, func(t *testing.T) sequencer.Sequencer {
		schema := strings.ReplaceAll(t.Name(), "/", "_")
		schema = schema[:min(len(schema), 63)]
		require.NoError(t, migrations.Up(t.Context(), pool, migrations.WithSchema(schema)))
		return open(t, pool, pgseq.WithSchema(schema))
	})
}

func TestASchemaOfAnOddName(t *testing.T) {
	t.Parallel()
	const schema = `We"ird; schéma`
	s := open(t, connect(t, database(t, migrations.WithSchema(schema))), pgseq.WithSchema(schema))
	require.EqualValues(t, 1, next(t, s, 0))
}

func TestTwoProcessesShareTheCounter(t *testing.T) {
	t.Parallel()
	url := database(t)
	one, two := open(t, connect(t, url)), open(t, connect(t, url))
	require.EqualValues(t, 1, next(t, one, 0))
	require.EqualValues(t, 2, next(t, two, 0))
	require.EqualValues(t, 3, next(t, one, 0))
}

func TestTokensOfOneResourceHaveNoGaps(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t, database(t)))
	require.EqualValues(t, 1, next(t, s, 0))
	_, err := s.Next(t.Context(), "another one", 500)
	require.NoError(t, err)
	require.EqualValues(t, 2, next(t, s, 0), "resources have counters of their own")
}

// Above READ COMMITTED callers who wait for each other would fail with 40001.
func TestASessionsIsolationLevelDoesNotMatter(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t, database(t), "default_transaction_isolation=serializable"))
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			var err error
			for i := 0; i < 10 && err == nil; i++ {
				_, err = s.Next(context.WithoutCancel(t.Context()), resource, 0)
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(servertest.PgBouncer(t, database(t)))
	require.NoError(t, err)
	for _, mode := range []string{"exec", "simple_protocol"} {
		q := u.Query()
		q.Set("default_query_exec_mode", mode)
		u.RawQuery = q.Encode()
		s := open(t, connect(t, u.String()))
		token := next(t, s, 0)
		require.Equal(t, token+1, next(t, s, 0))
		require.Equal(t, token+10, next(t, s, token+9))
	}
}

func TestS18_ARefusedDemandLeavesCounterAndConnectionAsTheyWere(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(database(t))
	require.NoError(t, err)
	config.MaxConns = 1
	pool := connectWith(t, config)
	s := open(t, pool)
	require.EqualValues(t, 7, next(t, s, 6))
	_, err = s.Next(t.Context(), resource, math.MaxInt64-1)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `pgseq: next "inventory:sku-42"`)
	require.ErrorContains(t, err, "ahead of the counter at 7")
	_, err = open(t, pool, pgseq.WithMaxJump(math.MaxInt64)).Next(t.Context(), resource, math.MaxInt64)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
	_, err = open(t, pool, pgseq.WithMaxJump(10)).Next(t.Context(), resource, 18)
	require.ErrorIs(t, err, sequencer.ErrJump)

	require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "an error of the server costs no connection")
	require.NoError(t, pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		require.Equal(t, byte('I'), c.Conn().PgConn().TxStatus())
		return nil
	}))
	require.EqualValues(t, 8, next(t, s, 0))
}

func TestAMissingSchemaNamesTheCommand(t *testing.T) {
	t.Parallel()
	none := open(t, connect(t, servertest.Postgres(t)))
	_, err := none.Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, `run "fencectl migrate up"`)

	_, err = open(t, connect(t, servertest.Postgres(t)), pgseq.WithSchema("Other")).Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, `run "fencectl migrate up --schema Other"`)

	old := open(t, connect(t, database(t, migrations.To(1))))
	_, err = old.Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, `run "fencectl migrate up"`)
}

func TestARoleWithoutRightsIsToldWhichItNeeds(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := connect(t, url)
	_, err := pool.Exec(t.Context(), "REVOKE USAGE ON SCHEMA fencing FROM PUBLIC")
	require.NoError(t, err)
	role := pgx.Identifier{"sequencer_" + strings.ToLower(t.Name())}.Sanitize()
	_, err = pool.Exec(t.Context(), "CREATE ROLE "+role)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP ROLE "+role) })
	s := open(t, connect(t, url, "role="+strings.Trim(role, `"`)))
	_, err = s.Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, "grant it USAGE")
}

func TestAReadOnlyServerIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t, database(t), "default_transaction_read_only=on"))
	_, err := s.Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, "connect to the primary")
}

func TestAClosedPoolIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	pool := connect(t, database(t))
	pool.Close()
	_, err := open(t, pool).Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, "closed pool")
}

func TestAWrongPasswordStaysSecret(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(servertest.Postgres(t))
	require.NoError(t, err)
	u.User = url.UserPassword("nobody_at_all", "wr0ng-secret")
	_, err = open(t, connect(t, u.String())).Next(t.Context(), resource, 0)
	require.ErrorContains(t, err, "nobody_at_all")
	require.NotContains(t, err.Error(), "wr0ng-secret")
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	pool := connect(t, "postgres://127.0.0.1:1/none")
	for says, f := range map[string]func() (*pgseq.Sequencer, error){
		"pool is nil":            func() (*pgseq.Sequencer, error) { return pgseq.New(nil) },
		`schema name "" is`:      func() (*pgseq.Sequencer, error) { return pgseq.New(pool, pgseq.WithSchema("")) },
		"1 to 63 bytes":          func() (*pgseq.Sequencer, error) { return pgseq.New(pool, pgseq.WithSchema(strings.Repeat("s", 64))) },
		"without NUL":            func() (*pgseq.Sequencer, error) { return pgseq.New(pool, pgseq.WithSchema("a\x00")) },
		"option is nil":          func() (*pgseq.Sequencer, error) { return pgseq.New(pool, nil) },
		"jump 0 is not positive": func() (*pgseq.Sequencer, error) { return pgseq.New(pool, pgseq.WithMaxJump(0)) },
	} {
		_, err := f()
		require.ErrorContains(t, err, says)
	}
}

func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil { // once, where the database is set up
		fmt.Println(err)
		return
	}
	tokens, err := pgseq.New(pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	token, err := tokens.Next(ctx, "inventory:sku-42", 0)
	fmt.Println(token, err)
}

func BenchmarkNext(b *testing.B) {
	pool := connect(b, database(b))
	s := open(b, pool)
	b.Run("one caller", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Next(b.Context(), resource, 0)
			require.NoError(b, err)
		}
	})
	for name, key := range map[string]func(caller int) string{
		"eight callers, one resource":    func(int) string { return resource },
		"eight callers, a resource each": func(i int) string { return fmt.Sprint("order:", i) },
	} {
		b.Run(name, func(b *testing.B) {
			callers := make(chan int, 64)
			for i := range cap(callers) {
				callers <- i
			}
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				r := key(<-callers)
				for pb.Next() {
					if _, err := s.Next(b.Context(), r, 0); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	_, err := pool.Exec(b.Context(), "CREATE TABLE bare (token bigint); INSERT INTO bare VALUES (0)")
	require.NoError(b, err)
	b.Run("bare UPDATE", func(b *testing.B) { // what the function costs over it
		for b.Loop() {
			var token int64
			require.NoError(b, pool.QueryRow(b.Context(), "UPDATE bare SET token = token + 1 RETURNING token").Scan(&token))
		}
	})
}
