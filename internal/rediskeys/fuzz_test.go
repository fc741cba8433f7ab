package rediskeys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediskeys"
)

func FuzzKeys(f *testing.F) {
	f.Add("fencing", 256, "inventory:sku-42", "inventory:sku-43", "nonce")
	f.Add("a:lock", 1, "{x}", "}{", "{y}")
	f.Add("p", rediskeys.MaxShards, "", "\x00", "lock:{1}:")
	f.Add("{", 0, "a", "b", "c")
	f.Fuzz(func(t *testing.T, prefix string, shards int, a, b, nonce string) {
		s := rediskeys.Scheme{Prefix: prefix, Shards: shards}
		if s.Validate() != nil {
			return
		}
		k, other := s.Keys(a, nonce), s.Keys(b, nonce)
		keys := []string{k.Lock, k.Counter, k.Released, k.Members, k.Queue, k.Alive}
		for i, key := range keys {
			require.Equal(t, slot(keys[0]), slot(key), "a script with %q and %q is not for one node", keys[0], key)
			require.True(t, strings.HasPrefix(key, prefix+":"))
			require.NotContains(t, keys[:i], key, "two things under one key")
		}
		if a == b {
			return
		}
		for i, key := range []string{other.Lock, other.Members, other.Queue, other.Alive} {
			require.NotContains(t, keys, key, "key %d of another resource", i)
		}
	})
}

// slot is Redis Cluster's, from its specification ("Keys distribution model").
func slot(key string) uint16 {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return crc % rediskeys.MaxShards
}

func TestSlotIsThatOfTheSpecification(t *testing.T) {
	t.Parallel()
	require.Equal(t, uint16(0x31c3), slot("123456789"))
	require.Equal(t, slot("user1000"), slot("{user1000}.following"))
	require.NotEqual(t, slot("bar"), slot("foo{}{bar}"))
	require.Equal(t, slot("{bar"), slot("foo{{bar}}zap"))
}
