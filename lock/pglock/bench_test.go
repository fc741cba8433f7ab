package pglock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/pgguard"
)

func benchPool(b *testing.B) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(database(b))
	require.NoError(b, err)
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	return pool
}

// BenchmarkAcquireRelease compares a lock whose fence is raised by a guard, in a
// second round trip and commit, with one that raises it itself. "bare" is the least
// that a lease table can do: an INSERT and a DELETE, each durable.
func BenchmarkAcquireRelease(b *testing.B) {
	pool := benchPool(b)
	g, err := pgguard.New(pool)
	require.NoError(b, err)
	for _, c := range []struct {
		name string
		opts []pglock.Option
		lock []lock.Option
	}{
		{"no fence", nil, nil},
		{"WithGuards", nil, []lock.Option{lock.WithGuards(g)}},
		{"WithRaise", []pglock.Option{pglock.WithRaise()}, nil},
		{"WithRaise and WithGuards", []pglock.Option{pglock.WithRaise()}, []lock.Option{lock.WithGuards(g)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := locker(b, open(b, pool, c.opts...), c.lock...)
			b.ReportAllocs()
			for b.Loop() {
				s, err := l.Acquire(context.Background(), resource)
				if err != nil {
					b.Fatal(err)
				}
				_ = s.Release(context.Background())
			}
		})
	}
	_, err = pool.Exec(b.Context(), "CREATE TABLE bare (resource text PRIMARY KEY, nonce text)")
	require.NoError(b, err)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if _, err := pool.Exec(b.Context(), "INSERT INTO bare VALUES ($1, 'n')", resource); err != nil {
				b.Fatal(err)
			}
			if _, err := pool.Exec(b.Context(), "DELETE FROM bare WHERE resource = $1 AND nonce = 'n'", resource); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkParallel is 16 callers with a resource each.
func BenchmarkParallel(b *testing.B) {
	pool := benchPool(b)
	l := locker(b, open(b, pool, pglock.WithRaise()))
	var callers atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		r := fmt.Sprint("order:", callers.Add(1))
		for pb.Next() {
			if err := l.Do(b.Context(), r, func(context.Context) error { return nil }); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkHandoff is how long a waiter in another process waits for a release.
func BenchmarkHandoff(b *testing.B) {
	pool := benchPool(b)
	one, two := locker(b, open(b, pool)), locker(b, open(b, pool))
	s, err := one.Acquire(b.Context(), resource)
	require.NoError(b, err)
	for b.Loop() {
		b.StopTimer()
		got := make(chan *lock.Lease)
		go func() {
			next, err := two.Acquire(context.Background(), resource)
			if err != nil {
				b.Error(err)
			}
			got <- next
		}()
		time.Sleep(20 * time.Millisecond) // until it waits
		b.StartTimer()
		_ = s.Release(context.Background())
		s = <-got
		one, two = two, one
	}
	_ = s.Release(context.Background())
}

// BenchmarkRenewAll renews 1,000 leases at once.
func BenchmarkRenewAll(b *testing.B) {
	backend := open(b, benchPool(b))
	requests := make([]lock.Request, 1000)
	for i := range requests {
		requests[i] = request()
		requests[i].Resource = fmt.Sprint("order:", i)
		acquire(b, backend, requests[i])
	}
	for b.Loop() {
		for _, err := range backend.RenewAll(b.Context(), requests) {
			require.NoError(b, err)
		}
	}
}
