package redisguard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The ratio of fenced to plain is what travels; the times do not. Both are done by
// turns, so that they meet the same machine.
func BenchmarkSet(b *testing.B) {
	g, rdb, resource := shared(b)
	ctx, _ := raised(b, g, resource, 33, "A")
	key := g.Key(resource, "stock")
	plain := func() error { return rdb.Set(ctx, key, "42", 0).Err() }
	fenced := func() error { return g.Set(ctx, key, "42", 0) }

	var took [2][]time.Duration
	for b.Loop() {
		for i, set := range []func() error{plain, fenced} {
			began := time.Now()
			require.NoError(b, set())
			took[i] = append(took[i], time.Since(began))
		}
	}
	b.ReportMetric(float64(median(took[1]))/float64(median(took[0])), "fenced/plain")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func BenchmarkRaise(b *testing.B) {
	g, _, resource := shared(b)
	f := fence(resource, 0, "A")
	for b.Loop() {
		f.Token++
		require.NoError(b, g.Raise(b.Context(), f))
	}
}
