package redisguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard/guardtest"
	"github.com/go-fencing/fencing/guard/redisguard"
	"github.com/go-fencing/fencing/internal/servertest"
)

var (
	enterScript  = redisguard.NewScript(`return 1`)
	getScript    = redisguard.NewScript(`return redis.call('HGET', KEYS[1], ARGV[1])`)
	commitScript = redisguard.NewScript(`
		for i = 1, #ARGV, 3 do
			if ARGV[i] == 'put' then
				redis.call('HSET', KEYS[1], ARGV[i + 1], ARGV[i + 2])
			else
				redis.call('HDEL', KEYS[1], ARGV[i + 1])
			end
		end`)
)

// A store is a table in one hash. All of its resources have one tag: the suite has
// transactions of several.
type store struct {
	*redisguard.Guard
	table string
}

func newStore(t *testing.T, rdb redis.UniversalClient) store {
	return store{open(t, rdb, redisguard.WithTag(func(string) string { return "suite" })), "table:{suite}"}
}

func (s store) Update(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
	if err := s.Run(ctx, enterScript, []string{s.table}).Err(); err != nil {
		return err
	}
	tx := &tx{store: s, changes: make(map[string]*string)}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	var args []any
	for key, value := range tx.changes {
		if value == nil {
			args = append(args, "delete", key, "")
		} else {
			args = append(args, "put", key, *value)
		}
	}
	err := s.Run(ctx, commitScript, []string{s.table}, args...).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// A tx keeps its changes to itself; its reads are under the fences.
type tx struct {
	store
	changes map[string]*string
}

func (t *tx) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	if changed, ok := t.changes[key]; ok {
		if changed == nil {
			return "", false, nil
		}
		return *changed, true, nil
	}
	value, err = t.Run(ctx, getScript, []string{t.table}, key).Text()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return value, err == nil, err
}

func (t *tx) Put(_ context.Context, key, value string) error {
	t.changes[key] = &value
	return nil
}

func (t *tx) Delete(_ context.Context, key string) error {
	t.changes[key] = nil
	return nil
}

func TestConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return newStore(t, client(t, servertest.Redis(t))) })
}

func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	rdb := clusterClient(t, servertest.NewRedisCluster(t, 3, 0))
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return newStore(t, rdb) })
}

// With a key of its own in the slot of each resource, however odd its name is.
func TestOddNamesHaveASlotOfTheirOwn(t *testing.T) {
	t.Parallel()
	rdb := clusterClient(t, servertest.NewRedisCluster(t, 2, 0))
	g := open(t, rdb)
	for _, resource := range []string{"x", "x}", "}{", "{}", "{}x", "x{y}z", "x{y}{z}", "{x}", "x{y", "{{x}}", "склад", "%7D", "a{}}b"} {
		ctx, _ := raised(t, g, resource, 33, "A")
		key := g.Key(resource, "stock")
		require.NoError(t, g.Set(ctx, key, resource, 0), resource)
		require.Equal(t, resource, rdb.Get(ctx, key).Val())
	}
}
