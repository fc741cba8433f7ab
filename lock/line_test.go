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
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

// A countingBackend wakes its waiters, counts their questions, and passes no lock on.
type countingBackend struct {
	lock.Backend
	lock.Waiter
	asked atomic.Int64
}

func newCounting() *countingBackend {
	b := memlock.New()
	return &countingBackend{Backend: b, Waiter: b}
}

func (b *countingBackend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	b.asked.Add(1)
	return b.Backend.Acquire(ctx, r)
}

// A deafBackend never wakes anybody.
type deafBackend struct{ *memlock.Backend }

func (deafBackend) Watch(lock.Request) (<-chan struct{}, func()) { return nil, func() {} }

// arrive lets n goroutines wait for the lock, one after the other. Each holds it for
// some time once it has it, and notes its number in order.
func arrive(t *testing.T, l *lock.Locker, n int, hold time.Duration) (order *[]int, all *sync.WaitGroup) {
	order, all = new([]int), new(sync.WaitGroup)
	for i := range n {
		all.Go(func() {
			s, err := l.Acquire(t.Context(), resource)
			if err != nil {
				return
			}
			*order = append(*order, i)
			time.Sleep(hold)
			_ = s.Release(t.Context())
		})
		synctest.Wait()
	}
	return order, all
}

func TestOneWaiterOfALockerAsksForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newCounting()
		l := newLocker(t, b)
		first := acquire(t, newLocker(t, b))
		b.asked.Store(0)
		order, all := arrive(t, l, 50, time.Second)
		require.EqualValues(t, 2, b.asked.Load(), "the first attempt, and one when the watch is in effect")
		require.NoError(t, first.Release(t.Context()))
		all.Wait()
		require.Len(t, *order, 50)
		require.IsIncreasing(t, *order, "the lock is served in the order of arrival")
		require.LessOrEqual(t, b.asked.Load(), int64(3*50), "not every waiter at every release")
	})
}

func TestAWaiterThatGivesUpHandsItsPlaceOn(t *testing.T) {
	for name, open := range map[string]func(*memlock.Backend) lock.Backend{
		"woken":   func(b *memlock.Backend) lock.Backend { return b },
		"deaf":    func(b *memlock.Backend) lock.Backend { return deafBackend{b} },
		"polling": func(*memlock.Backend) lock.Backend { return locktest.NewFake() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(memlock.New())
				l := newLocker(t, b)
				first := acquire(t, newLocker(t, b, lock.WithHolder("worker-1")))
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan error, 2)
				for range 2 {
					go func() {
						_, err := l.Acquire(ctx, resource)
						gone <- err
					}()
				}
				synctest.Wait()
				order, all := arrive(t, l, 1, time.Second)
				cancel()
				for range 2 {
					err := <-gone
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, lock.ErrHeld)
					require.ErrorContains(t, err, "worker-1")
				}
				require.NoError(t, first.Release(t.Context()))
				begun := time.Now()
				all.Wait()
				require.Len(t, *order, 1)
				require.LessOrEqual(t, time.Since(begun), time.Second+2*time.Second, "held for a second; a lost wake-up costs no more than two")
			})
		})
	}
}

// A waiter may have taken the wake-up with it.
func TestTheNextInLineAsksWhenTheFirstHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newCounting()
		l := newLocker(t, b)
		acquire(t, newLocker(t, b))
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			_, _ = l.Acquire(ctx, resource)
			close(gone)
		}()
		synctest.Wait()
		arrive(t, l, 1, time.Second)
		b.asked.Store(0)
		cancel()
		<-gone
		synctest.Wait()
		require.EqualValues(t, 1, b.asked.Load())
	})
}

func TestCloseEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		acquire(t, newLocker(t, b))
		l := newLocker(t, b)
		ended := make(chan error, 5)
		for range cap(ended) {
			go func() {
				_, err := l.Acquire(t.Context(), resource)
				ended <- err
			}()
		}
		synctest.Wait()
		require.NoError(t, l.Close())
		for range cap(ended) {
			err := <-ended
			require.ErrorIs(t, err, lock.ErrClosed)
			require.ErrorIs(t, err, lock.ErrHeld)
		}
	})
}

func TestFairWaitersOfSeveralLockersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		first := acquire(t, newLocker(t, b, lock.WithFair()))
		lockers := []*lock.Locker{newLocker(t, b, lock.WithFair()), newLocker(t, b, lock.WithFair()), newLocker(t, b, lock.WithFair())}
		var order []int
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				s, err := lockers[i%3].Acquire(t.Context(), resource)
				if err == nil {
					order = append(order, i)
					_ = s.Release(t.Context())
				}
			})
			synctest.Wait()
		}
		require.NoError(t, first.Release(t.Context()))
		all.Wait()
		require.Len(t, order, 12)
		require.IsIncreasing(t, order)
	})
}

// A failover, seen by one who waits already.
func TestAWaiterOutlivesAnOutageOfTheBackEnd(t *testing.T) {
	for name, opts := range map[string][]lock.Option{"plain": nil, "bounded": {lock.WithMaxRetries(1000)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := locktest.NewFake()
				first := acquire(t, newLocker(t, fake))
				got := make(chan error, 1)
				go func() {
					s, err := newLocker(t, fake, opts...).Acquire(t.Context(), resource)
					if err == nil {
						err = s.Release(t.Context())
					}
					got <- err
				}()
				time.Sleep(time.Second)
				fake.Before(locktest.Acquire, fail)
				time.Sleep(ttl - 2*time.Second)
				fake.Before(locktest.Acquire, nil)
				require.NoError(t, first.Release(t.Context()))
				require.NoError(t, <-got)
			})
		})
	}
}

func TestALongOutageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		acquire(t, newLocker(t, fake, lock.WithHolder("worker-1")))
		got := make(chan error, 1)
		l := newLocker(t, fake)
		go func() {
			_, err := l.Acquire(t.Context(), resource)
			got <- err
		}()
		time.Sleep(time.Second)
		fake.Before(locktest.Acquire, fail)
		begun := time.Now()
		require.ErrorIs(t, <-got, errBroken)
		require.LessOrEqual(t, time.Since(begun), ttl+2*time.Second)

		_, err := l.Acquire(t.Context(), resource)
		require.ErrorIs(t, err, errBroken, "who does not wait yet is told at once")
		require.LessOrEqual(t, time.Since(begun), ttl+2*time.Second)
	})
}

func TestTheEndOfAWaitNamesTheHolderAndTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := locktest.NewFake()
		acquire(t, newLocker(t, fake, lock.WithHolder("worker-1")))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		time.AfterFunc(time.Second, func() { fake.Before(locktest.Acquire, fail) })
		_, err := newLocker(t, fake).Acquire(ctx, resource)
		for _, is := range []error{context.DeadlineExceeded, lock.ErrHeld, errBroken} {
			require.ErrorIs(t, err, is)
		}
		require.ErrorContains(t, err, "worker-1")
	})
}
