package rediskeys_test

import (
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediskeys"
)

func TestKeysOfOneResourceShareAHashTag(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"inventory:sku-42", "a{b}c", "{", "сток", ""} {
		h := fnv.New32a()
		h.Write([]byte(resource))
		shard := h.Sum32() % 256
		s := rediskeys.Default()
		require.Equal(t, fmt.Sprintf("fencing:lock:{%d}:%s", shard, resource), s.Lock(resource))
		require.Equal(t, fmt.Sprintf("fencing:fence:{%d}", shard), s.Counter(resource))
		require.Equal(t, fmt.Sprintf("fencing:released:{%d}:n", shard), s.Keys(resource, "n").Released)
	}
}

func TestTheNumberOfCountersIsBounded(t *testing.T) {
	t.Parallel()
	counters := map[string]bool{}
	s := rediskeys.Scheme{Prefix: "p", Shards: 16}
	for i := range 10_000 {
		counters[s.Counter(fmt.Sprint("order:", i))] = true
	}
	require.Len(t, counters, 16)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, rediskeys.Default().Validate())
	for says, s := range map[string]rediskeys.Scheme{
		"is empty":     {Prefix: "", Shards: 1},
		`"a{b" has a`:  {Prefix: "a{b", Shards: 1},
		"control":      {Prefix: "a\nb", Shards: 1},
		"0 shards":     {Prefix: "a", Shards: 0},
		"16385 shards": {Prefix: "a", Shards: 16385},
	} {
		require.ErrorContains(t, s.Validate(), says)
	}
}
