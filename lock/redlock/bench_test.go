package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/lock/redlock"
)

// BenchmarkAcquireRelease compares with lock/redislock on one of the nodes, call by
// call in turn, so that the ratio holds on a noisy machine. All nodes share its
// processors, so that their number costs more here than over a network.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		for name, opts := range map[string][]redlock.Option{
			"": nil, "/trusting": {redlock.WithRestartDelay(0)},
		} {
			b.Run(fmt.Sprintf("nodes=%d%s", n, name), func(b *testing.B) { compare(b, n, opts) })
		}
	}
}

func compare(b *testing.B, n int, opts []redlock.Option) {
	c := start(b, n)
	c.establish(b)
	one, err := redislock.New(c.clients[0])
	require.NoError(b, err)
	single, err := lock.New(one)
	require.NoError(b, err)
	several, err := lock.New(c.backend(b, opts...))
	require.NoError(b, err)
	cycle := func(l *lock.Locker) time.Duration {
		begun := time.Now()
		s, err := l.Acquire(context.Background(), resource)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
		return time.Since(begun)
	}
	cycle(several)
	cycle(single)
	var ours, theirs time.Duration
	i := 0
	for b.Loop() {
		i++
		theirs += cycle(single)
		ours += cycle(several)
	}
	b.ReportMetric(float64(ours)/float64(theirs), "x-of-single")
	b.ReportMetric(float64(ours.Microseconds())/float64(i), "µs/lock")
	_, _ = single.Close(), several.Close()
}
