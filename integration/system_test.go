package integration_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/integration/stack"
	"github.com/go-fencing/fencing/integration/worker"
	"github.com/go-fencing/fencing/internal/faultlink"
	"github.com/go-fencing/fencing/internal/history"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/migrations"
)

func TestMain(m *testing.M) {
	worker.Main()
	stack.Main(m)
}

const (
	sku  = "inventory:sku-42" // where one resource is enough
	soon = time.Minute
)

// A system is a Redis, a database with the fence schema and the history, and the
// workers on them. What they leave behind is checked at the end of the test.
type system struct {
	testing.TB
	redis    *stack.Redis
	postgres *stack.Postgres
	database string // URL
	pool     *pgxpool.Pool
	prefix   string
	journal  *worker.Journal
	broken   []history.Kind // the rules that must be broken, in a negative control
}

// newSystem puts a system on servers that the tests share, or on those given.
func newSystem(t testing.TB, servers ...any) *system {
	t.Helper()
	s := &system{TB: t, prefix: strings.ToLower(rand.Text()), journal: worker.NewJournal()}
	for _, server := range servers {
		switch server := server.(type) {
		case *stack.Redis:
			s.redis = server
		case *stack.Postgres:
			s.postgres = server
		}
	}
	if s.redis == nil {
		s.redis = stack.SharedRedis(t)
	}
	if s.postgres == nil {
		s.postgres = stack.SharedPostgres(t)
	}
	s.database = s.postgres.NewDatabase()
	s.pool = s.postgres.Pool(s.database)
	require.NoError(t, migrations.Up(t.Context(), s.pool))
	s.must(history.Tables)
	s.resources(sku)
	t.Cleanup(s.check)
	return s
}

// resources makes the balances that appends need.
func (s *system) resources(names ...string) {
	s.Helper()
	s.must("INSERT INTO balance (resource) SELECT unnest($1::text[])", names)
}

// A contender is a worker with links of its own to both servers.
type contender struct {
	*worker.Worker
	redis    *faultlink.Link
	postgres *faultlink.Link
}

func (s *system) worker(name string, adjust ...func(*worker.Config)) *contender {
	s.Helper()
	c := &contender{redis: s.link(s.redis.Addr()), postgres: s.link(s.postgres.Addr())}
	config := worker.Config{
		Name: name, Prefix: s.prefix,
		Redis:    stack.URLOf(c.redis.Addr()),
		Postgres: stack.Via(s, s.database, c.postgres.Addr()),
	}
	for _, f := range adjust {
		f(&config)
	}
	c.Worker = worker.Start(s, s.journal, config)
	return c
}

func (s *system) link(target string) *faultlink.Link {
	s.Helper()
	l, err := faultlink.New(target)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, l.Close()) })
	return l
}

// hold orders an append that waits at a step, and waits until it is there.
func (c *contender) hold(o worker.Order, at worker.Step) (op string, there worker.Report) {
	c.Helper()
	o.Hold = append(o.Hold, at)
	op = c.Append(o)
	return op, c.Await(op, at)
}

// goOn ends a pause and the hold, and waits until the append is done.
func (c *contender) goOn(op string) worker.Report {
	c.Helper()
	c.Continue()
	c.Go()
	return c.Await(op, worker.Done)
}

// check is the oracle of every test.
func (s *system) check() {
	if s.Failed() {
		return // it would only distract
	}
	// The backend of a killed worker may still be at work.
	s.await("SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name <> ''")
	rows, balances, err := history.Load(context.Background(), s.pool)
	require.NoError(s, err)
	var broken []history.Kind
	violations := history.Check(rows, balances, s.journal.Outcomes())
	for _, v := range violations {
		broken = append(broken, v.Kind)
	}
	if s.broken == nil {
		require.Empty(s, violations)
		return
	}
	require.Subset(s, broken, s.broken, "the harness sees what goes wrong without a fence; it saw %v", violations)
}

func (s *system) must(sql string, args ...any) {
	s.Helper()
	_, err := s.pool.Exec(s.Context(), sql, args...)
	require.NoError(s, err, sql)
}

// await waits until a query returns true.
func (s *system) await(sql string, args ...any) {
	s.Helper()
	require.Eventually(s, func() bool {
		var met bool
		return s.pool.QueryRow(context.Background(), sql, args...).Scan(&met) == nil && met
	}, soon, 5*time.Millisecond, sql)
}

// awaitRaiseBlocked waits until a worker waits for the gate of a resource.
func (s *system) awaitRaiseBlocked(c *contender) {
	s.Helper()
	s.awaitLock(c, "advisory")
}

func (s *system) awaitLock(c *contender, kind string) {
	s.Helper()
	s.await(`SELECT count(*) > 0 FROM pg_stat_activity
	          WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock' AND wait_event = $2`, c.Name, kind)
}

// fence returns the token in force; 0 if there is none.
func (s *system) fence(resource string) (t guard.Token) {
	s.Helper()
	require.NoError(s, s.pool.QueryRow(s.Context(),
		"SELECT coalesce((SELECT token FROM fencing.fence WHERE resource = $1), 0)", resource).Scan((*int64)(&t)))
	return t
}

func (s *system) keys() rediskeys.Scheme {
	keys := rediskeys.Default()
	keys.Prefix = s.prefix
	return keys
}

// counter returns the last token that a Redis has given; 0 if it has forgotten.
func (s *system) counter(r *stack.Redis, resource string) guard.Token {
	s.Helper()
	n, err := r.Client().Get(s.Context(), s.keys().Counter(resource)).Int64()
	if err != nil {
		require.ErrorContains(s, err, "nil")
	}
	return guard.Token(n)
}

// warmUp lets a worker append once to each resource, so that there are fences, and
// counters and scripts in Redis.
func (s *system) warmUp(c *contender, resources ...string) {
	s.Helper()
	for _, resource := range resources {
		c.RequireOutcome(c.Do(worker.Order{Resource: resource}), history.Committed)
	}
}

// previous returns the append that op was computed from.
func (s *system) previous(op string) (previous string) {
	s.Helper()
	require.NoError(s, s.pool.QueryRow(s.Context(), "SELECT previous FROM history WHERE op = $1", op).Scan(&previous))
	return previous
}

func (s *system) written(op string) (there bool) {
	s.Helper()
	require.NoError(s, s.pool.QueryRow(s.Context(), "SELECT count(*) > 0 FROM history WHERE op = $1", op).Scan(&there))
	return there
}
