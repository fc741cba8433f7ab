package redisguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The ratio of fenced to plain is what travels; the times do not.
func BenchmarkSet(b *testing.B) {
	g, rdb, resource := shared(b)
	ctx, _ := raised(b, g, resource, 33, "A")
	key := g.Key(resource, "stock")
	run := func(name string, set func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, set())
			}
		})
		b.Run(name+" by many", func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := set(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	run("plain", func() error { return rdb.Set(ctx, key, "42", 0).Err() })
	run("fenced", func() error { return g.Set(ctx, key, "42", 0) })
}

func BenchmarkRaise(b *testing.B) {
	g, _, resource := shared(b)
	f := fence(resource, 0, "A")
	for b.Loop() {
		f.Token++
		require.NoError(b, g.Raise(b.Context(), f))
	}
}
