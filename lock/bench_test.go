package lock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// BenchmarkAcquireRelease is what the locker itself costs.
func BenchmarkAcquireRelease(b *testing.B) {
	l, err := lock.New(memlock.New())
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		s, err := l.Acquire(context.Background(), resource)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
