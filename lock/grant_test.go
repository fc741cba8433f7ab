package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// grantLife is how long a grant lives that nobody renews.
const grantLife = 2 * time.Second

// A grantingBackend grants the lock to the last one that was refused it as one that
// waits, when it is released.
type grantingBackend struct {
	*memlock.Backend

	mu       sync.Mutex
	waiting  *lock.Request
	grants   map[string]guard.Token
	until    time.Time // of the last grant
	asked    int
	listened int // with AcquireWaiting
	freed    []string
	renewals error
	over     bool // every grant, when it is claimed
}

func newGranting() *grantingBackend {
	return &grantingBackend{Backend: memlock.New(), grants: make(map[string]guard.Token)}
}

func (b *grantingBackend) Acquire(ctx context.Context, r lock.Request) (guard.Token, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return b.Backend.Acquire(ctx, r)
}

func (b *grantingBackend) AcquireWaiting(ctx context.Context, r lock.Request) (guard.Token, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listened++
	token, err := b.Backend.Acquire(ctx, r)
	if errors.Is(err, lock.ErrHeld) {
		b.waiting = &r
	}
	return token, err
}

func (b *grantingBackend) Release(ctx context.Context, r lock.Request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freed = append(b.freed, r.Nonce)
	if b.waiting != nil && b.waiting.Nonce == r.Nonce {
		b.waiting = nil
	}
	err := b.Backend.Release(ctx, r)
	if err == nil && b.waiting != nil {
		next := *b.waiting
		b.waiting, next.TTL = nil, grantLife
		b.until = time.Now().Add(grantLife)
		b.grants[next.Nonce], err = b.Backend.Acquire(ctx, next)
	}
	return err
}

func (b *grantingBackend) Renew(ctx context.Context, r lock.Request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.renewals != nil {
		return b.renewals
	}
	return b.Backend.Renew(ctx, r)
}

func (b *grantingBackend) Claim(r lock.Request) (guard.Token, time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	token, ok := b.grants[r.Nonce]
	delete(b.grants, r.Nonce)
	return token, b.until, ok && !b.over
}

func (b *grantingBackend) questions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked + b.listened
}

// wait lets l wait for the lock until it is parked.
func wait(ctx context.Context, l *lock.Locker) <-chan *lock.Lease {
	leases := make(chan *lock.Lease, 1)
	go func() {
		s, err := l.Acquire(ctx, resource)
		if err != nil {
			s = nil
		}
		leases <- s
	}()
	synctest.Wait()
	return leases
}

func TestAGrantNeedsNoQuestionAndIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGranting()
		first := acquire(t, newLocker(t, b))
		next := wait(t.Context(), newLocker(t, b))
		before := b.questions()
		require.NoError(t, first.Release(t.Context()))
		s := <-next
		require.Equal(t, before, b.questions())
		require.Greater(t, s.Fence().Token, first.Fence().Token)
		require.Less(t, s.Deadline(), b.until, "it relies on more than it was granted")
		require.Greater(t, time.Until(s.Deadline()), grantLife/2)

		time.Sleep(grantLife)
		synctest.Wait()
		require.NoError(t, s.Context().Err(), "it was not renewed in time")
		require.Greater(t, time.Until(s.Deadline()), 2*grantLife, "a renewal is for the whole TTL")
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestAGrantThatIsNotRenewedEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGranting()
		first := acquire(t, newLocker(t, b))
		next := wait(t.Context(), newLocker(t, b))
		b.mu.Lock()
		b.renewals = errors.New("cut off")
		b.mu.Unlock()
		require.NoError(t, first.Release(t.Context()))
		s := <-next
		<-s.Lost()
		require.Less(t, time.Now(), b.until, "another may have the lock by now")
	})
}

func TestAGrantThatIsOverIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGranting()
		b.over = true
		first := acquire(t, newLocker(t, b))
		next := wait(t.Context(), newLocker(t, b))
		before := b.questions()
		require.NoError(t, first.Release(t.Context()))
		s := <-next
		require.Equal(t, before+1, b.questions())
		require.Greater(t, time.Until(s.Deadline()), 2*grantLife)
	})
}

// Nobody else would get the lock before that ends.
func TestAWaiterThatGivesUpIsNotGrantedTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGranting()
		first := acquire(t, newLocker(t, b))
		ctx, cancel := context.WithCancel(t.Context())
		next := wait(ctx, newLocker(t, b))
		b.mu.Lock()
		nonce := b.waiting.Nonce
		b.mu.Unlock()
		cancel()
		require.Nil(t, <-next)
		synctest.Wait()
		require.Equal(t, []string{nonce}, b.freed)
		require.NoError(t, first.Release(t.Context()))
		h, err := b.Inspect(t.Context(), resource)
		require.NoError(t, err)
		require.Zero(t, h.Members)
	})
}

// Nobody has the nonce any more under which it was refused: a grant to that would lie idle.
func TestAWaiterToWhichALostHoldWasPassedIsNotGrantedTheLockUnderItsOldNonce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGranting()
		l := newLocker(t, b)
		lost := acquire(t, l)
		next := wait(t.Context(), l)
		other := lock.Request{Resource: resource, Nonce: "other", TTL: time.Minute}
		b.mu.Lock() // so that the waiter does not find it free
		nonce := b.waiting.Nonce
		err := b.Backend.Release(t.Context(), lock.Request{Resource: resource, Nonce: lost.Fence().Nonce})
		token, failed := b.Backend.Acquire(t.Context(), other)
		b.mu.Unlock()
		require.NoError(t, errors.Join(err, failed))
		synctest.Wait() // it has been refused again
		require.ErrorIs(t, lost.Release(t.Context()), lock.ErrLost)
		synctest.Wait()
		b.mu.Lock()
		freed, waiting := b.freed, b.waiting
		b.mu.Unlock()
		require.Contains(t, freed, nonce)
		require.NotNil(t, waiting)
		require.NotEqual(t, nonce, waiting.Nonce)
		require.NoError(t, b.Release(t.Context(), other))
		s := <-next
		require.Equal(t, token+1, s.Fence().Token, "nobody had it first")
		require.NoError(t, s.Release(t.Context()))
	})
}

func TestWhoCannotKeepAGrantAsksForNone(t *testing.T) {
	for name, opt := range map[string]lock.Option{
		"renews nothing":      lock.WithoutRenewal(),
		"waits in turn":       lock.WithFair(),
		"counts its attempts": lock.WithMaxRetries(100),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newGranting()
				first := acquire(t, newLocker(t, b, opt))
				next := wait(t.Context(), newLocker(t, b, opt))
				time.Sleep(time.Second)
				require.NoError(t, first.Release(t.Context()))
				require.NotNil(t, <-next)
				require.Zero(t, b.listened)
			})
		})
	}
}

func TestTheEndOfAGrantedHoldCountsFromTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10 * time.Second
		b := newGranting()
		first := acquire(t, newLocker(t, b))
		next := wait(t.Context(), newLocker(t, b, lock.WithMaxHold(most)))
		require.NoError(t, first.Release(t.Context()))
		s := <-next
		begun := time.Now()
		<-s.Lost()
		require.Equal(t, most, time.Since(begun))
	})
}
