package php_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/internal/exampletest"
	"github.com/go-fencing/fencing/examples/internal/servers"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/pgguard"
)

const (
	resource = "inventory:sku-42"
	update   = "UPDATE stock SET left_over = left_over - 1 WHERE sku = 'sku-42'"
)

// shared are keys beside a lock whose key has the name of the resource.
func shared(resource string) (lock, counter string) { return resource, resource + ":fence" }

// A side is Go's side: the same servers, with a table that only fenced writes reach.
type side struct {
	servers.Servers
	rdb    redis.UniversalClient
	pool   *pgxpool.Pool
	store  *pgguard.Guard
	locker *lock.Locker
}

func newSide(t *testing.T, opts ...redislock.Option) *side {
	t.Helper()
	servers := exampletest.Servers(t)
	o, err := redis.ParseURL(servers.Redis)
	require.NoError(t, err)
	return newSideOn(t, servers, redis.NewClient(o), opts...)
}

func newSideInCluster(t *testing.T) *side {
	t.Helper()
	c := servertest.NewRedisCluster(t, 3, 0)
	return newSideOn(t, servers.Servers{Postgres: servertest.Postgres(t), Redis: "redis://" + c.Addrs()[0]},
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}))
}

func newSideOn(t *testing.T, servers servers.Servers, rdb redis.UniversalClient, opts ...redislock.Option) *side {
	t.Helper()
	s := &side{Servers: servers, rdb: rdb}
	t.Cleanup(func() { _ = rdb.Close() })
	var err error
	s.pool, err = pgxpool.New(t.Context(), s.Postgres)
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	s.migrate(t)
	s.store, err = pgguard.New(s.pool, pgguard.WithLockTimeout(2*time.Minute), pgguard.WithIdleTimeout(time.Minute)) // on a busy machine a test may be slow
	require.NoError(t, err)
	b, err := redislock.New(s.rdb, opts...)
	require.NoError(t, err)
	s.locker, err = lock.New(b, lock.WithGuards(s.store), lock.WithHolder("go"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.locker.Close() })
	return s
}

func (s *side) migrate(t *testing.T) {
	t.Helper()
	require.NoError(t, migrations.Up(t.Context(), s.pool))
	var v struct {
		Setup   []string
		Protect struct{ Table, Resource string }
	}
	data, err := os.ReadFile("../../docs/testdata/sql.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &v))
	up, _, err := migrations.Protect(v.Protect.Table, migrations.ProtectOptions{Trigger: true, Resource: v.Protect.Resource})
	require.NoError(t, err)
	for _, sql := range append(v.Setup, up) {
		_, err := s.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}

func (s *side) write(ctx context.Context) error {
	return s.store.InTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, update)
		return err
	})
}

func (s *side) left(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT left_over FROM stock WHERE sku = 'sku-42'").Scan(&n))
	return n
}

// forget makes Redis forget the lock and its counter, as a failover does.
func (s *side) forget(t *testing.T) {
	t.Helper()
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
}

func parse(t *testing.T, text any) (f guard.Fence) {
	t.Helper()
	require.IsType(t, "", text)
	require.NoError(t, f.UnmarshalText([]byte(text.(string))))
	return f
}
