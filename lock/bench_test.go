package lock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
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

// instant is a back end that costs nothing.
type instant struct{}

func (instant) Acquire(context.Context, lock.Request) (guard.Token, error) { return 1, nil }
func (instant) Renew(context.Context, lock.Request) error                  { return nil }
func (instant) Release(context.Context, lock.Request) error                { return nil }
func (instant) Bounded() bool                                              { return true }

// Every one counts: with a back end's own they are what a lock costs in memory.
func TestALeaseMakesFewAllocations(t *testing.T) { // not parallel: it counts those of the process
	l, err := lock.New(instant{})
	require.NoError(t, err)
	cycle := func() {
		s, err := l.Acquire(t.Context(), resource)
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context()))
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, cycle), 15.0)
}
