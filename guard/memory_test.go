package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
)

// held returns a context that carries f.
func held(ctx context.Context, f guard.Fence) context.Context { return guard.NewContext(ctx, f) }

// never is the body of a write that must be refused.
func never(t *testing.T) func() error {
	return func() error {
		t.Error("a refused write ran its function")
		return nil
	}
}

// begin starts a write under f and returns once it runs; end lets it finish.
func begin(t *testing.T, m *guard.Memory, f guard.Fence) (end func() error) {
	t.Helper()
	running, finish, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- m.Write(held(context.WithoutCancel(t.Context()), f), f.Resource, func() error {
			close(running)
			<-finish
			return nil
		})
	}()
	<-running
	return func() error {
		close(finish)
		return <-result
	}
}

func TestS1_MemoryRefusesTheLateWrite(t *testing.T) {
	t.Parallel()
	m, a, b := guard.NewMemory(), fence("a", 33), fence("b", 34)
	require.NoError(t, m.Raise(t.Context(), a))
	before := time.Now()
	require.NoError(t, m.Raise(t.Context(), b))

	err := m.Write(held(t.Context(), a), a.Resource, never(t))
	stale, ok := errors.AsType[*guard.StaleError](err)
	require.True(t, ok, "got %v", err)
	require.Equal(t, a, stale.Held)
	require.Equal(t, b, stale.Current)
	require.WithinRange(t, stale.Since, before, time.Now())
	require.NoError(t, m.Write(held(t.Context(), b), b.Resource, func() error { return nil }))
}

func TestMemoryRunsNothingOfARefusedWrite(t *testing.T) {
	t.Parallel()
	m, a := guard.NewMemory(), fence("a", 33)
	zero := guard.Fence{Resource: a.Resource}

	require.ErrorIs(t, m.Write(t.Context(), a.Resource, never(t)), guard.ErrNoFence)
	require.ErrorIs(t, m.Write(held(t.Context(), named("another", 33)), a.Resource, never(t)), guard.ErrNoFence, "S46")
	require.ErrorIs(t, m.Write(held(t.Context(), a), a.Resource, never(t)), guard.ErrNotRaised, "a write never creates a fence")
	require.ErrorIs(t, m.Write(held(t.Context(), a), a.Resource, never(t)), guard.ErrNotRaised)
	require.ErrorIs(t, m.Write(held(t.Context(), zero), a.Resource, never(t)), guard.ErrNotRaised, "no fence is not a fence")
	require.NoError(t, m.Raise(t.Context(), a))
	require.ErrorIs(t, m.Write(held(t.Context(), fence("b", 34)), a.Resource, never(t)), guard.ErrNotRaised)
	require.ErrorIs(t, m.Write(held(t.Context(), fence("b", 33)), a.Resource, never(t)), guard.ErrConflict)
	require.ErrorIs(t, m.Write(held(t.Context(), zero), a.Resource, never(t)), guard.ErrStale)
}

func TestMemoryReturnsTheErrorOfTheWrite(t *testing.T) {
	t.Parallel()
	m, a := guard.NewMemory(), fence("a", 33)
	require.NoError(t, m.Raise(t.Context(), a))
	full := errors.New("disk full")
	require.ErrorIs(t, m.Write(held(t.Context(), a), a.Resource, func() error { return full }), full)
	require.NoError(t, m.Raise(t.Context(), fence("b", 34)), "a failed write leaves the gate")
}

func TestS22_MemoryTakesARepeatedRaise(t *testing.T) {
	t.Parallel()
	m, a := guard.NewMemory(), fence("a", 33)
	require.NoError(t, m.Raise(t.Context(), a))
	before := time.Now()
	renamed := a
	renamed.Holder = "worker-a after a restart"
	require.NoError(t, m.Raise(t.Context(), renamed))
	err := m.Raise(t.Context(), fence("b", 33))
	require.ErrorIs(t, err, guard.ErrConflict)
	stale, ok := errors.AsType[*guard.StaleError](err)
	require.True(t, ok)
	require.Equal(t, a, stale.Current)
	require.False(t, stale.Since.After(before), "a repetition does not change when the fence was raised")
	require.ErrorIs(t, m.Raise(t.Context(), fence("b", 32)), guard.ErrStale)
	require.NoError(t, m.Write(held(t.Context(), a), a.Resource, func() error { return nil }))
}

func TestMemoryRefusesAnInvalidFence(t *testing.T) {
	t.Parallel()
	m := guard.NewMemory()
	require.ErrorIs(t, m.Raise(t.Context(), guard.Fence{}), guard.ErrInvalid)
	require.ErrorIs(t, m.Raise(t.Context(), fence("a", -1)), guard.ErrInvalid)
	require.NoError(t, m.Raise(t.Context(), fence("a", 1)), "nothing was raised before")
}

func TestMemoryRefusesADeadContextAtOnce(t *testing.T) {
	t.Parallel()
	lost := errors.New("lease lost")
	dead, cancel := context.WithCancelCause(t.Context())
	cancel(lost)
	m, a := guard.NewMemory(), fence("a", 33)
	require.ErrorIs(t, m.Raise(dead, a), lost)
	require.ErrorIs(t, m.Write(held(t.Context(), a), a.Resource, never(t)), guard.ErrNotRaised, "a dead raise raises nothing")
	require.NoError(t, m.Raise(t.Context(), a))
	require.ErrorIs(t, m.Write(held(dead, a), a.Resource, never(t)), lost)
}

func TestMemoryLetsWritesOfOneFenceOverlap(t *testing.T) {
	t.Parallel()
	m, a := guard.NewMemory(), fence("a", 33)
	require.NoError(t, m.Raise(t.Context(), a))
	var both sync.WaitGroup
	both.Add(2)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			results <- m.Write(held(t.Context(), a), a.Resource, func() error {
				both.Done()
				both.Wait() // ends only if the other write runs as well
				return nil
			})
		}()
	}
	require.NoError(t, <-results)
	require.NoError(t, <-results)
}

func TestMemoryKeepsResourcesApart(t *testing.T) {
	t.Parallel()
	m, a, other := guard.NewMemory(), fence("a", 33), named("another", 1)
	require.NoError(t, m.Raise(t.Context(), a))
	end := begin(t, m, a)
	require.NoError(t, m.Raise(t.Context(), other), "a running write of one resource does not block another")
	require.NoError(t, m.Write(held(t.Context(), other), other.Resource, func() error { return nil }))
	require.NoError(t, end())
}

func TestS4_MemoryRaiseWaitsForTheRunningWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, a, b := guard.NewMemory(), fence("a", 33), fence("b", 34)
		require.NoError(t, m.Raise(t.Context(), a))
		end := begin(t, m, a)
		raised := make(chan error, 1)
		go func() { raised <- m.Raise(t.Context(), b) }()
		synctest.Wait()
		require.Empty(t, raised, "raised over a running write")
		require.NoError(t, end(), "the write came first and is good")
		require.NoError(t, <-raised)
	})
}

func TestS5_BlockedRaiseEndsWithItsContextAndLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, a, b := guard.NewMemory(), fence("a", 33), fence("b", 34)
		require.NoError(t, m.Raise(t.Context(), a))
		end := begin(t, m, a)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := m.Raise(ctx, b)
		require.ErrorIs(t, err, guard.ErrBlocked)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `raise "inventory:sku-42" token 34`)
		require.ErrorContains(t, err, "1 running write")
		require.Equal(t, time.Second, time.Since(start))

		// A raise that is still counted as waiting would keep this write out for ever.
		require.NoError(t, m.Write(held(t.Context(), a), a.Resource, func() error { return nil }))
		require.NoError(t, end())
		require.NoError(t, m.Write(held(t.Context(), a), a.Resource, func() error { return nil }))
		require.NoError(t, m.Raise(t.Context(), b))
	})
}

func TestWriteBehindAWaitingRaiseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, a, b := guard.NewMemory(), fence("a", 33), fence("b", 34)
		require.NoError(t, m.Raise(t.Context(), a))
		end := begin(t, m, a)
		raised := make(chan error, 1)
		go func() { raised <- m.Raise(t.Context(), b) }()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(held(t.Context(), a), time.Second)
		defer cancel()
		require.ErrorIs(t, m.Write(ctx, a.Resource, never(t)), context.DeadlineExceeded)
		require.NoError(t, end())
		require.NoError(t, <-raised)
	})
}

func TestMemoryRaiseIsNotStarvedByAStreamOfWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes, streams = 8 * time.Millisecond, 4
		m, a, b := guard.NewMemory(), fence("a", 33), fence("b", 34)
		require.NoError(t, m.Raise(t.Context(), a))
		refused := make(chan error, streams)
		for i := range streams {
			go func() {
				time.Sleep(time.Duration(i) * takes / streams) // so that at every moment some write runs
				for {
					err := m.Write(held(t.Context(), a), a.Resource, func() error {
						time.Sleep(takes)
						return nil
					})
					if err != nil {
						refused <- err
						return
					}
				}
			}()
		}
		time.Sleep(10*takes + time.Millisecond)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		require.NoError(t, m.Raise(ctx, b))
		require.LessOrEqual(t, time.Since(start), takes, "a raise waits for the writes that run, not for those that come")
		for range streams {
			require.ErrorIs(t, <-refused, guard.ErrStale)
		}
	})
}

func TestMemoryPanickingWriteLeavesTheGate(t *testing.T) {
	t.Parallel()
	m, a := guard.NewMemory(), fence("a", 33)
	require.NoError(t, m.Raise(t.Context(), a))
	require.PanicsWithValue(t, "boom", func() {
		_ = m.Write(held(t.Context(), a), a.Resource, func() error { panic("boom") })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, m.Raise(ctx, fence("b", 34)))
}

func TestMemoryOrdersConcurrentRaisesByToken(t *testing.T) {
	t.Parallel()
	m := guard.NewMemory()
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		written []guard.Token
	)
	for token := guard.Token(1); token <= 64; token++ {
		workers.Go(func() {
			f := fence("w", token)
			if err := m.Raise(t.Context(), f); err != nil {
				return
			}
			_ = m.Write(held(t.Context(), f), f.Resource, func() error {
				mu.Lock()
				defer mu.Unlock()
				written = append(written, token)
				return nil
			})
		})
	}
	workers.Wait()
	require.NotEmpty(t, written)
	require.IsIncreasing(t, append([]guard.Token{0}, written...))
}
