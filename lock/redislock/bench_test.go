package redislock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
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

// BenchmarkCutOff cuts 1,000 holders off from Redis and reports how many of them had
// a live context when the next one had the lock already. The margin that a holder
// does not count on is 12ms here; a machine that lets a goroutine wait for longer
// than that shows why a context alone is no guard.
func BenchmarkCutOff(b *testing.B) {
	url := servertest.Redis(b)
	prefix := "bench-" + rand.Text()
	var overlaps, trials atomic.Int64
	for b.Loop() {
		var all sync.WaitGroup
		for pair := range 100 {
			holder, cut := cutLocker(b, url, prefix)
			next, _ := cutLocker(b, url, prefix)
			resource := fmt.Sprintf("cut:%d:%s", pair, rand.Text())
			all.Go(func() {
				for range 10 {
					cut.Store(false)
					s, err := holder.Acquire(context.Background(), resource)
					if err != nil {
						continue // its connection has not come back yet
					}
					cut.Store(true)
					after, err := next.Acquire(context.Background(), resource)
					if err != nil {
						b.Error(err)
						return
					}
					trials.Add(1)
					if s.Context().Err() == nil {
						overlaps.Add(1)
					}
					_ = after.Release(context.Background())
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(overlaps.Load()), "overlaps")
	b.ReportMetric(float64(trials.Load()), "trials")
}

// cutLocker returns a locker whose network drops what is sent while cut is true.
func cutLocker(b *testing.B, url, prefix string) (l *lock.Locker, cut *atomic.Bool) {
	cut = new(atomic.Bool)
	o, err := redis.ParseURL(url)
	require.NoError(b, err)
	o.PoolSize, o.MaxRetries, o.ReadTimeout, o.ContextTimeoutEnabled = 1, -1, time.Second, true
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return cutConn{conn, cut}, err
	}
	rdb := redis.NewClient(o)
	backend, err := redislock.New(rdb, redislock.WithPrefix(prefix))
	require.NoError(b, err)
	l, err = lock.New(backend, lock.WithTTL(time.Second), lock.WithRetryWait(5*time.Millisecond))
	require.NoError(b, err)
	b.Cleanup(func() { _, _ = l.Close(), rdb.Close() })
	return l, cut
}

// A cutConn loses what is sent while it is cut, as a network does that drops packets.
type cutConn struct {
	net.Conn
	cut *atomic.Bool
}

func (c cutConn) Write(p []byte) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
