package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
)

// A mill is one resource as its holders see it.
type mill struct {
	name   string
	inside atomic.Int32
	held   atomic.Int64
	mu     sync.Mutex
	last   guard.Token
}

// Eight processes, three resources, five servers, of which one at a time hangs, is
// killed and comes back without its data, or is emptied. Every raise must be granted
// at once: a token that is not greater than the ones before would be refused.
func TestTortureWithOneNodeFailingAtATime(t *testing.T) {
	t.Parallel()
	c := start(t, 5)
	c.establish(t)
	const ttl = 4 * time.Second // also for how long a node that forgot has no vote
	store := guard.NewMemory()
	mills := []*mill{{name: "a"}, {name: "b"}, {name: "c"}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for i := range 8 {
		b := c.backend(t, patient())
		l, err := lock.New(b, lock.WithTTL(ttl), lock.WithRetryWait(10*time.Millisecond), lock.WithHolder(fmt.Sprintf("worker %d", i)))
		require.NoError(t, err)
		workers.Go(func() {
			defer func() { _ = l.Close() }()
			for ctx.Err() == nil {
				m := mills[rand.N(len(mills))]
				if err := m.work(ctx, l, store); err != nil {
					t.Error(err)
					stop()
				}
			}
		})
	}

	b := c.backend(t, patient())
	faults := 0
	for _, f := range []struct {
		name string
		fail func(i int) error
	}{
		{"hangs", func(i int) error {
			if err := c.servers[i].Pause(); err != nil {
				return err
			}
			c.progress(t, ctx, mills, 10)
			return c.servers[i].Resume()
		}},
		{"is killed", func(i int) error {
			if err := c.servers[i].Kill(); err != nil {
				return err
			}
			c.progress(t, ctx, mills, 10)
			return c.servers[i].Restart(ctx)
		}},
		{"is emptied", func(i int) error { return c.clients[i].FlushAll(ctx).Err() }},
	} {
		i := faults % len(c.servers)
		require.NoError(t, f.fail(i), "node %d %s", i, f.name)
		faults++
		c.progress(t, ctx, mills, 10)
		require.Eventually(t, func() bool { return ctx.Err() != nil || c.established(t, b) }, 2*time.Minute, 20*time.Millisecond,
			"node %d, which %s, does not come back", i, f.name)
	}
	c.progress(t, ctx, mills, 10)
	stop()
	workers.Wait()
	for _, m := range mills {
		t.Logf("resource %s: %d holds, token %d", m.name, m.held.Load(), m.last)
	}
}

// work is one hold.
func (m *mill) work(ctx context.Context, l *lock.Locker, store *guard.Memory) error {
	s, err := l.Acquire(ctx, m.name)
	if err != nil {
		if ctx.Err() != nil || strings.Contains(err.Error(), "a majority of 3 is needed") {
			return nil // the machine is slow, too
		}
		return fmt.Errorf("acquire: %w", err)
	}
	if n := m.inside.Add(1); n != 1 {
		return fmt.Errorf("%d holders of %q at once", n, m.name)
	}
	f := s.Fence()
	m.mu.Lock()
	last := m.last
	m.last = max(m.last, f.Token)
	m.mu.Unlock()
	if f.Token <= last {
		return fmt.Errorf("token %d of %q comes after token %d", f.Token, m.name, last)
	}
	if err := store.Raise(ctx, f); err != nil && ctx.Err() == nil {
		return fmt.Errorf("raise: %w", err)
	}
	m.held.Add(1)
	overran := s.Context().Err() != nil && ctx.Err() == nil
	m.inside.Add(-1)
	if overran {
		return nil // the machine is that slow; the lock may have been another's meanwhile
	}
	if err := s.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrUnknown) {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// progress waits until every resource has been held n times more.
func (c *cluster) progress(t *testing.T, ctx context.Context, mills []*mill, n int64) {
	t.Helper()
	for _, m := range mills {
		until := m.held.Load() + n
		require.Eventually(t, func() bool { return ctx.Err() != nil || m.held.Load() >= until }, 2*time.Minute, 5*time.Millisecond,
			"resource %s is stuck", m.name)
	}
}
