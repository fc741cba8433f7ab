package lock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// A passingBackend counts its calls, and may do something else than to pass.
type passingBackend struct {
	*memlock.Backend
	unbounded, deaf         bool
	asked, released, passed atomic.Int32

	mu     sync.Mutex
	before func() error // each Acquire
	pass   passFunc     // instead of the next one
	late   func()       // after the next Release
}

type passFunc func(ctx context.Context, r, next lock.Request) (guard.Token, error)

func newPassing() *passingBackend { return &passingBackend{Backend: memlock.New()} }

func (b *passingBackend) Bounded() bool { return !b.unbounded }

func (b *passingBackend) Watch(r lock.Request) (<-chan struct{}, func()) {
	if b.deaf {
		return nil, func() {}
	}
	return b.Backend.Watch(r)
}

func (b *passingBackend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	b.asked.Add(1)
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return 0, err
		}
	}
	return b.Backend.Acquire(ctx, r)
}

func (b *passingBackend) beforeAcquire(before func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = before
}

func (b *passingBackend) Release(ctx context.Context, r lock.Request) error {
	b.released.Add(1)
	b.mu.Lock()
	late := b.late
	b.late = nil
	b.mu.Unlock()
	if late != nil {
		defer late()
	}
	return b.Backend.Release(ctx, r)
}

func (b *passingBackend) Pass(ctx context.Context, r, next lock.Request) (guard.Token, error) {
	b.passed.Add(1)
	b.mu.Lock()
	pass := b.pass
	b.pass = nil
	b.mu.Unlock()
	if pass == nil {
		pass = b.Backend.Pass
	}
	return pass(ctx, r, next)
}

// once makes the next Pass be pass.
func (b *passingBackend) once(pass passFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass = pass
}

// delay makes the reply of the next Pass wait, whatever its context says, until resume.
func (b *passingBackend) delay() (resume func()) {
	gate := make(chan struct{})
	b.once(func(ctx context.Context, r, next lock.Request) (guard.Token, error) {
		token, err := b.Backend.Pass(ctx, r, next)
		<-gate
		return token, err
	})
	return sync.OnceFunc(func() { close(gate) })
}

func (b *passingBackend) holding(t *testing.T) lock.Holding {
	t.Helper()
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	return h
}

// A granted lease, and when it was.
type granted struct {
	*lock.Lease
	err error
	at  time.Time
}

// waitFor lets a goroutine wait for the lock, and returns when it does.
func waitFor(ctx context.Context, l *lock.Locker) <-chan granted {
	got := make(chan granted, 1)
	go func() {
		s, err := l.Acquire(ctx, resource)
		got <- granted{s, err, time.Now()}
	}()
	synctest.Wait()
	return got
}

// release releases s on a goroutine, and returns when that is done or hangs.
func release(t *testing.T, s *lock.Lease) <-chan error {
	released := make(chan error, 1)
	go func() { released <- s.Release(t.Context()) }()
	synctest.Wait()
	return released
}

func TestAReleaseIsTheGrantOfTheNextInLine(t *testing.T) {
	for _, unbounded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var r recorder
			b := newPassing()
			b.unbounded = unbounded
			l := newLocker(t, b, lock.WithObserver(r.observe))
			first := acquire(t, l)
			order, all := arrive(t, l, 50, time.Millisecond)
			b.asked.Store(0)
			require.NoError(t, first.Release(t.Context()))
			all.Wait()
			require.Len(t, *order, 50)
			require.IsIncreasing(t, *order, "the order of arrival")
			require.EqualValues(t, 50, b.passed.Load(), "one call for each who waits")
			require.EqualValues(t, 0, b.asked.Load())
			require.EqualValues(t, 1, b.released.Load(), "nobody waits for the last one")
			require.Zero(t, b.holding(t).Token)
			for kind, want := range map[guard.EventKind]int{guard.EventAcquired: 51, guard.EventWaited: 50, guard.EventReleased: 51, guard.EventLost: 0} {
				require.Equal(t, want, r.count(kind), kind.String())
			}
		})
	}
}

// Who comes next is known before its goroutine has run: no release is too quick for it.
func TestAQuickReleaseIsPassedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		l := newLocker(t, b)
		first := acquire(t, l)
		order, all := arrive(t, l, 50, 0)
		require.NoError(t, first.Release(t.Context()))
		all.Wait()
		require.Len(t, *order, 50)
		require.EqualValues(t, 50, b.passed.Load())
	})
}

func TestThePassedLeaseCountsFromTheSendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		l := newLocker(t, b, lock.WithMaxHold(2*ttl))
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		resume := b.delay()
		sent := time.Now()
		released := release(t, first)
		time.Sleep(3 * time.Second)
		resume()
		require.NoError(t, <-released)
		s := <-got
		require.NoError(t, s.err)
		require.Equal(t, 3*time.Second, s.at.Sub(sent))
		require.Equal(t, sent.Add(ttl-margin), s.Deadline())
		<-s.Lost()
		require.Equal(t, 2*ttl, time.Since(sent), "and so does the longest hold; until then it is renewed")
		require.ErrorIs(t, s.Release(t.Context()), lock.ErrLost)
	})
}

// The store may be slow: that is the time of the one who gets the lock.
func TestTheFenceIsRaisedByTheWaiterAndNotByTheReleaser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store := newPassing(), guard.NewMemory()
		var raisedFor []any
		g := guardFunc(func(ctx context.Context, f guard.Fence) error {
			raisedFor = append(raisedFor, ctx.Value(traceKey{}))
			if f.Token > 1 {
				time.Sleep(time.Second)
			}
			return store.Raise(ctx, f)
		})
		l := newLocker(t, b, lock.WithGuards(g))
		first := acquire(t, l)
		got := waitFor(context.WithValue(t.Context(), traceKey{}, "waiter"), l)
		begun := time.Now()
		require.NoError(t, first.Release(t.Context()))
		require.Zero(t, time.Since(begun), "the releaser waits for the raise")
		s := <-got
		require.NoError(t, s.err)
		require.EqualValues(t, 1, b.passed.Load())
		require.NoError(t, write(s.Context(), store))
		require.Equal(t, []any{nil, "waiter"}, raisedFor)
		require.NoError(t, s.Release(t.Context()))
	})
}

// S7: the passed lock is lost while its fence is raised.
func TestS7_APassedLockThatIsLostDuringTheRaiseIsAcquiredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store := newPassing(), guard.NewMemory()
		g := guardFunc(func(ctx context.Context, f guard.Fence) error {
			if f.Token == 2 {
				require.NoError(t, b.Backend.Release(ctx, lock.Request{Resource: resource, Nonce: f.Nonce}))
				<-ctx.Done() // the keeper finds out and ends the raise
				return context.Cause(ctx)
			}
			return store.Raise(ctx, f)
		})
		l := newLocker(t, b, lock.WithGuards(g))
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		require.NoError(t, first.Release(t.Context()))
		s := <-got
		require.NoError(t, s.err)
		require.EqualValues(t, 3, s.Fence().Token)
		require.NoError(t, write(s.Context(), store))
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestOneWhoAsksAlreadyIsPassedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		l := newLocker(t, b)
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		gate := make(chan struct{})
		b.beforeAcquire(func() error { <-gate; return nil })
		time.Sleep(2 * time.Second) // it asks now and then
		require.NoError(t, first.Release(t.Context()))
		close(gate)
		s := <-got
		require.NoError(t, s.err)
		require.NoError(t, s.Release(t.Context()))
		require.EqualValues(t, 0, b.passed.Load())
		require.EqualValues(t, 2, b.released.Load())
	})
}

// A member leaves the lock of another, which is not its to pass.
func TestAMemberLeavesAndPassesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		owner := acquire(t, newLocker(t, b))
		l := newLocker(t, b)
		member, err := l.Join(t.Context(), owner.Fence())
		require.NoError(t, err)
		got := waitFor(t.Context(), l)
		require.NoError(t, member.Release(t.Context()))
		synctest.Wait()
		require.EqualValues(t, 0, b.passed.Load())
		require.Empty(t, got)
		require.NoError(t, owner.Release(t.Context()))
		s := <-got
		require.NoError(t, s.err)
		require.NoError(t, s.Release(t.Context()))
	})
}

// What waits for the last lease of a hold, or the last member, is not passed before.
func TestTheLockIsPassedByTheLastOneOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		l := newLocker(t, b)
		outer := acquire(t, l)
		inner, err := l.Acquire(outer.Context(), resource)
		require.NoError(t, err)
		member, err := newLocker(t, b).Join(t.Context(), outer.Fence())
		require.NoError(t, err)
		got := waitFor(t.Context(), l)
		require.NoError(t, outer.Release(t.Context()))
		require.EqualValues(t, 0, b.passed.Load(), "the inner lease has it")
		require.NoError(t, inner.Release(t.Context()))
		synctest.Wait()
		require.Empty(t, got, "the member has it")
		require.NoError(t, member.Release(t.Context()))
		s := <-got
		require.NoError(t, s.err)
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestLocksOfAcquireAllArePassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		l := newLocker(t, b)
		first, err := l.AcquireAll(t.Context(), "a", "b")
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				s, err := l.AcquireAll(t.Context(), "a", "b")
				if err == nil {
					err = s.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, first.Release(t.Context()))
		all.Wait()
		require.Zero(t, time.Since(begun))
		require.GreaterOrEqual(t, b.passed.Load(), int32(10), "of a, which they all wait for; some may wait for b then")
	})
}

func TestCloseReleasesAndPassesToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPassing()
		l, err := lock.New(b)
		require.NoError(t, err)
		first := acquire(t, l)
		got := waitFor(t.Context(), l)
		require.NoError(t, l.Close())
		require.ErrorIs(t, (<-got).err, lock.ErrClosed)
		require.ErrorIs(t, first.Release(t.Context()), lock.ErrReleased)
		require.EqualValues(t, 0, b.passed.Load())
		require.Zero(t, b.holding(t).Token)
	})
}
