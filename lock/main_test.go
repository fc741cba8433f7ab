package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const resource = "inventory:sku-42"

// newLocker returns a locker and closes it when the test ends, inside its bubble.
func newLocker(t *testing.T, b lock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func acquire(t *testing.T, l *lock.Locker) *lock.Lease {
	t.Helper()
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	return s
}

// isFree reports whether another process could have the lock now.
func isFree(t *testing.T, f *locktest.Fake) bool {
	t.Helper()
	h, err := f.Inspect(t.Context(), resource)
	require.NoError(t, err)
	return h.Token == 0
}

func isLost(s *lock.Lease) bool {
	select {
	case <-s.Lost():
		return true
	default:
		return false
	}
}

// A recorder is an observer that remembers.
type recorder struct {
	mu     sync.Mutex
	events []guard.Event
}

func (r *recorder) observe(e guard.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all() []guard.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func (r *recorder) count(kind guard.EventKind) int {
	n := 0
	for _, e := range r.all() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// A guardFunc is a guard.Guard.
type guardFunc func(ctx context.Context, f guard.Fence) error

func (g guardFunc) Raise(ctx context.Context, f guard.Fence) error { return g(ctx, f) }

var errBroken = errors.New("broken pipe")

func fail(context.Context, lock.Request) error { return errBroken }

// ttl and margin of the lockers in these tests.
const (
	ttl    = 30 * time.Second
	margin = ttl/100 + 2*time.Millisecond
)
