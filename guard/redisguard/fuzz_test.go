package redisguard_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard/redisguard"
)

// Whatever a resource and its data are called, there is one slot for both, and the name
// that an error proposes is in it.
func FuzzKeys(f *testing.F) {
	for _, name := range []string{"inventory:sku-42", "order:{7}", "{}", "}{", "{{x}}", "a{b{c}", "a{}{b}", ""} {
		f.Add(name, "stock")
		f.Add("inventory:sku-42", name)
	}
	rdb := redis.NewClient(&redis.Options{})
	g, err := redisguard.New(rdb)
	require.NoError(f, err)
	f.Cleanup(func() { _ = rdb.Close() })
	f.Fuzz(func(t *testing.T, resource, name string) {
		fence, err := redisguard.FenceKey(g, resource)
		if err != nil {
			require.Empty(t, resource)
			return
		}
		tag := redisguard.TagOf(fence)
		require.NotEmpty(t, tag)
		require.Equal(t, tag, redisguard.TagOf(g.Key(resource, name)))
		require.Equal(t, tag, redisguard.TagOf(redisguard.Tagged(tag, name)))
		other, err := redisguard.FenceKey(g, resource+"x")
		require.NoError(t, err)
		require.NotEqual(t, fence, other)
	})
}
