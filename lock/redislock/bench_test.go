package redislock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
)

// What everybody writes first, and the least that any Redis lock can do: SET NX PX
// and a script that compares and deletes.
var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

// BenchmarkUncontended compares acquire + release with the raw commands, call by
// call in turn, so that the ratio holds on a noisy machine. Target: at most 1.25.
func BenchmarkUncontended(b *testing.B) {
	backend, rdb, _ := open(b)
	l, err := lock.New(backend)
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	ctx := context.Background()
	var ours, raw time.Duration
	n := 0
	for b.Loop() {
		n++
		begun := time.Now()
		nonce := rand.Text()
		if err := rdb.SetArgs(ctx, "raw", nonce, redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
			b.Fatal(err)
		}
		if err := compareAndDelete.Run(ctx, rdb, []string{"raw"}, nonce).Err(); err != nil {
			b.Fatal(err)
		}
		raw += time.Since(begun)

		begun = time.Now()
		s, err := l.Acquire(ctx, "inventory:sku-42")
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Release(ctx); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(begun)
	}
	b.ReportMetric(float64(ours)/float64(raw), "x-of-raw")
	b.ReportMetric(float64(ours.Microseconds())/float64(n), "µs/lock")
	b.ReportMetric(float64(raw.Microseconds())/float64(n), "µs/raw")
}

func BenchmarkAcquireRelease(b *testing.B) {
	backend, _, _ := open(b)
	l, err := lock.New(backend)
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	b.ReportAllocs()
	for b.Loop() {
		s, err := l.Acquire(context.Background(), "inventory:sku-42")
		if err != nil {
			b.Fatal(err)
		}
		_ = s.Release(context.Background())
	}
}

// BenchmarkTenThousandLeases holds 10,000 leases of one locker for three rounds of
// renewals and reports how many goroutines that took at most.
func BenchmarkTenThousandLeases(b *testing.B) {
	backend, _, _ := open(b)
	l, err := lock.New(backend, lock.WithTTL(1500*time.Millisecond))
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	before := runtime.NumGoroutine()
	leases := make([]*lock.Lease, 10_000)
	for i := range leases {
		if leases[i], err = l.Acquire(context.Background(), fmt.Sprintf("inventory:%d", i)); err != nil {
			b.Fatal(err)
		}
	}
	most := 0
	for b.Loop() {
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
			most = max(most, runtime.NumGoroutine()-before)
		}
	}
	lost := 0
	for _, s := range leases {
		if s.Release(context.Background()) != nil {
			lost++
		}
	}
	b.ReportMetric(float64(most), "goroutines")
	b.ReportMetric(float64(lost), "lost")
}
