package redisguard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/redisguard"
)

func TestSetHSetAndDel(t *testing.T) {
	t.Parallel()
	g, rdb, resource := shared(t)
	ctx, _ := raised(t, g, resource, 33, "A")
	key, hash := g.Key(resource, "stock"), g.Key(resource, "item")

	require.NoError(t, g.Set(ctx, key, 42, 0))
	require.Equal(t, "42", rdb.Get(ctx, key).Val())
	require.EqualValues(t, -1, rdb.PTTL(ctx, key).Val())
	require.NoError(t, g.Set(ctx, key, []byte{0, 255}, 90*time.Second))
	require.Equal(t, "\x00\xff", rdb.Get(ctx, key).Val())
	require.Greater(t, rdb.PTTL(ctx, key).Val(), time.Minute)
	require.NoError(t, g.Set(ctx, key, "kept", redis.KeepTTL))
	require.Greater(t, rdb.PTTL(ctx, key).Val(), time.Minute)
	require.NoError(t, g.Set(ctx, key, "short", 1500*time.Millisecond))
	require.Less(t, rdb.PTTL(ctx, key).Val(), 2*time.Second)
	for _, ttl := range []time.Duration{-2, -time.Second, time.Microsecond} {
		require.ErrorIs(t, g.Set(ctx, key, "x", ttl), guard.ErrInvalid)
	}

	for _, values := range [][]any{
		{"a", 1, "b", "two"},
		{map[string]any{"a": 1, "b": "two"}},
		{[]string{"a", "1", "b", "two"}},
		{struct {
			A int    `redis:"a"`
			B string `redis:"b"`
		}{1, "two"}},
	} {
		added, err := g.HSet(ctx, hash, values...)
		require.NoError(t, err)
		require.EqualValues(t, 2, added)
		require.Equal(t, map[string]string{"a": "1", "b": "two"}, rdb.HGetAll(ctx, hash).Val())
		deleted, err := g.Del(ctx, hash, key)
		require.NoError(t, err)
		require.Contains(t, []int64{1, 2}, deleted)
	}
	require.Zero(t, rdb.Exists(ctx, hash, key).Val())
	require.NoError(t, g.Set(ctx, key, "after a delete", 0), "the fence is still there")

	_, err := g.HSet(ctx, key, "a", 1)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.True(t, redis.HasErrorPrefix(err, "WRONGTYPE"))
	_, err = g.HSet(ctx, hash, "a")
	require.ErrorContains(t, err, "Wrong number of args")
	_, err = g.Del(ctx)
	require.ErrorContains(t, err, "no key")
	require.ErrorContains(t, g.Set(ctx, key, struct{}{}, 0), "nothing was sent: redis: can't marshal struct")
	_, err = g.HSet(ctx, hash, make([]any, 7001)...)
	require.ErrorContains(t, err, "more than 7000")
	full := make([]any, 6990)
	for i := range full {
		full[i] = i
	}
	added, err := g.HSet(ctx, hash, full...)
	require.NoError(t, err, "as many as are allowed")
	require.EqualValues(t, 3495, added)
}

// A writer is every way to write; each of them would change key.
var writers = map[string]func(ctx context.Context, g *redisguard.Guard, key string) error{
	"Set": func(ctx context.Context, g *redisguard.Guard, key string) error { return g.Set(ctx, key, "stale", 0) },
	"HSet": func(ctx context.Context, g *redisguard.Guard, key string) error {
		_, err := g.HSet(ctx, key+"#", "a", 1)
		return err
	},
	"Del": func(ctx context.Context, g *redisguard.Guard, key string) error {
		_, err := g.Del(ctx, key)
		return err
	},
	"Run": func(ctx context.Context, g *redisguard.Guard, key string) error {
		return g.Run(ctx, redisguard.NewScript("return redis.call('APPEND', KEYS[1], 'stale')"), []string{key}).Err()
	},
}

func TestARefusedWriteWritesNothing(t *testing.T) {
	t.Parallel()
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, rdb, resource := shared(t)
			key := g.Key(resource, "stock")
			holds := func(want string) {
				t.Helper()
				require.Equal(t, want, rdb.Get(t.Context(), key).Val())
				require.Zero(t, rdb.Exists(t.Context(), key+"#").Val())
			}
			require.NoError(t, rdb.Set(t.Context(), key, "unguarded", 0).Err())
			early := guard.NewContext(t.Context(), fence(resource, 1, "early"))
			require.ErrorIs(t, write(early, g, key), guard.ErrNotRaised)
			holds("unguarded")

			a, heldA := raised(t, g, resource, 33, "A")
			require.NoError(t, g.Set(a, key, "from A", 0))
			before := time.Now()
			b, heldB := raised(t, g, resource, 34, "B")
			err := write(a, g, key)
			require.ErrorIs(t, err, guard.ErrStale)
			require.NotErrorIs(t, err, guard.ErrConflict)
			stale, ok := errors.AsType[*guard.StaleError](err)
			require.True(t, ok)
			require.Equal(t, heldA, stale.Held)
			require.Equal(t, guard.Fence{Resource: resource, Token: 34, Holder: "B"}, stale.Current, "without the nonce, which would let A in")
			require.WithinDuration(t, before, stale.Since, soon)
			require.NotContains(t, err.Error(), heldB.Nonce)
			holds("from A")

			twin := fence(resource, 34, "twin")
			err = write(guard.NewContext(t.Context(), twin), g, key)
			require.ErrorIs(t, err, guard.ErrConflict)
			require.ErrorIs(t, err, guard.ErrStale)
			require.ErrorIs(t, g.Raise(t.Context(), twin), guard.ErrConflict)
			ahead := guard.NewContext(t.Context(), fence(resource, 35, "C"))
			require.ErrorIs(t, write(ahead, g, key), guard.ErrNotRaised)
			require.ErrorIs(t, write(t.Context(), g, key), guard.ErrNoFence)
			holds("from A")
			require.NoError(t, g.Set(b, key, "from B", 0))

			require.NoError(t, rdb.Del(t.Context(), "fencing:raised:{"+resource+"}", key).Err()) // as FLUSHALL does
			require.ErrorIs(t, write(b, g, key), guard.ErrNotRaised, "a Redis that forgot lets nobody in")
			holds("")
		})
	}
}

func TestS16_TokensAbove2To53(t *testing.T) {
	t.Parallel()
	g, _, resource := shared(t)
	low, _ := raised(t, g, resource, 1<<53, "A")
	require.ErrorIs(t, g.Raise(t.Context(), fence(resource, 1<<53, "B")), guard.ErrConflict)
	high, _ := raised(t, g, resource, 1<<53+1, "B")
	key := g.Key(resource, "stock")
	require.ErrorIs(t, g.Set(low, key, "stale", 0), guard.ErrStale)
	require.NoError(t, g.Set(high, key, "fresh", 0))
	require.ErrorIs(t, g.Raise(t.Context(), fence(resource, 999_999_999_999_999, "C")), guard.ErrStale, "as numbers, not as texts")
}

// Two resources with one tag are entered together; of others nobody is asked.
func TestAWriteEntersTheFencesOfItsSlot(t *testing.T) {
	t.Parallel()
	g, rdb, tag := shared(t)
	order, invoice, elsewhere := "order:{"+tag+"}", "invoice:{"+tag+"}", "elsewhere:"+tag
	_, a := raised(t, g, order, 33, "A")
	_, b := raised(t, g, invoice, 7, "A")
	_, c := raised(t, g, elsewhere, 1, "A")
	ctx := guard.NewContext(t.Context(), a, b, c)
	require.NoError(t, g.Set(ctx, "total:{"+tag+"}", 1, 0))
	raised(t, g, elsewhere, 2, "B")
	require.NoError(t, g.Set(ctx, "total:{"+tag+"}", 2, 0), "another slot has nothing to do with it")
	raised(t, g, invoice, 8, "B")
	err := g.Set(ctx, "total:{"+tag+"}", 3, 0)
	stale, ok := errors.AsType[*guard.StaleError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, b, stale.Held)
	require.Equal(t, "2", rdb.Get(ctx, "total:{"+tag+"}").Val())
}

func TestKeysThatNoFenceGuards(t *testing.T) {
	t.Parallel()
	g, rdb, _ := shared(t)
	held := func(resource string) context.Context {
		ctx, _ := raised(t, g, resource, guard.Token(time.Now().UnixNano()), "A")
		return ctx
	}
	sku := held("inventory:sku-42")
	for name, c := range map[string]struct {
		ctx  context.Context
		keys []string
		want error
		says string
	}{
		"no tag":                      {sku, []string{"stock:sku-42"}, guard.ErrNoFence, `name it "{inventory:sku-42}:stock:sku-42", or anything else with {inventory:sku-42}`},
		"another tag":                 {sku, []string{"stock:{sku-42}"}, guard.ErrNoFence, `name it "stock:{inventory:sku-42}"`},
		"a resource with a tag":       {held("order:{7}"), []string{"total:7"}, guard.ErrNoFence, `name it "{7}:total:7"`},
		"two slots":                   {sku, []string{"{inventory:sku-42}:a", "b"}, guard.ErrUnguarded, `such as "{inventory:sku-42}:a" and "{inventory:sku-42}:b"`},
		"no key":                      {sku, nil, nil, "no key is named"},
		"an empty key":                {sku, []string{""}, guard.ErrUnguarded, "a key is empty"},
		"the fence":                   {sku, []string{"fencing:raised:{inventory:sku-42}"}, guard.ErrUnguarded, "is a fence; only Raise writes those"},
		"no fence in the context":     {t.Context(), []string{"stock"}, guard.ErrNoFence, "acquire a lease and use its context"},
		"an invalid fence beside one": {guard.NewContext(sku, guard.Fence{Resource: "x", Token: 1}), []string{"{inventory:sku-42}:a"}, guard.ErrInvalid, "nonce is empty"},
	} {
		_, err := g.Del(c.ctx, c.keys...)
		require.ErrorContains(t, err, c.says, name)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
		}
	}
	require.EqualValues(t, 1, rdb.Exists(t.Context(), "fencing:raised:{inventory:sku-42}").Val())
	require.NoError(t, g.Set(sku, "inventory:sku-42", 1, 0), "the resource's own name is in its slot")
	require.NoError(t, g.Set(sku, "{inventory:sku-42}", 1, 0))
}

func TestWithTag(t *testing.T) {
	t.Parallel()
	g, rdb, resource := shared(t, redisguard.WithTag(func(resource string) string { return resource[len("inventory:"):] }), redisguard.WithPrefix("shop"))
	ctx, _ := raised(t, g, resource, 33, "A")
	sku := resource[len("inventory:"):]
	require.NoError(t, g.Set(ctx, "stock:{"+sku+"}", 1, 0))
	require.Equal(t, "33", rdb.HGet(ctx, "shop:raised:{"+sku+"}:"+resource, "token").Val())
	require.EqualValues(t, -1, rdb.PTTL(ctx, "shop:raised:{"+sku+"}:"+resource).Val(), "a fence must not expire")

	for _, bad := range []string{"", "a}b"} {
		g := open(t, rdb, redisguard.WithTag(func(string) string { return bad }))
		require.ErrorIs(t, g.Raise(t.Context(), fence(resource, 1, "A")), guard.ErrInvalid)
		require.ErrorIs(t, g.Set(ctx, "stock", 1, 0), guard.ErrInvalid)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	rdb := connect(t, &redis.Options{Addr: "127.0.0.1:1"})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	for says, c := range map[string]struct {
		rdb redis.UniversalClient
		opt redisguard.Option
	}{
		"client is nil":   {rdb: nil},
		"is nil":          {rdb: (*redis.Client)(nil)},
		"nil":             {rdb: (*redis.ClusterClient)(nil)},
		"Ring":            {rdb: ring},
		"option is nil":   {rdb: rdb},
		"prefix is empty": {rdb, redisguard.WithPrefix("")},
		"has a brace":     {rdb, redisguard.WithPrefix("a{b")},
		"function is nil": {rdb, redisguard.WithTag(nil)},
	} {
		_, err := redisguard.New(c.rdb, c.opt)
		require.ErrorContains(t, err, says)
	}
}
