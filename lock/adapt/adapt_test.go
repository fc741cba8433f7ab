package adapt_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sequencedlock"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/adapt"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/sequencer"
)

func newBackend(t *testing.T, p *peer) *adapt.Backend {
	t.Helper()
	b, err := adapt.New(p.mutex, adapt.WithRefused(refused))
	require.NoError(t, err)
	return b
}

func newSequencer(t *testing.T) *sequencer.Memory {
	t.Helper()
	s, err := sequencer.NewMemory()
	require.NoError(t, err)
	return s
}

func newLocker(t *testing.T, b lock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func request() lock.Request {
	return lock.Request{Resource: "sku-42", Nonce: rand.Text(), Holder: "test", TTL: time.Hour}
}

func TestBackend(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(t *testing.T) lock.Backend {
		return sequencedlock.New(newBackend(t, newPeer()), newSequencer(t))
	})
}

func TestNewRefusesWhatIsNil(t *testing.T) {
	t.Parallel()
	_, err := adapt.New(nil)
	require.ErrorContains(t, err, "mutex is nil")
	_, err = adapt.New(newPeer().mutex, nil)
	require.ErrorContains(t, err, "option is nil")
	_, err = adapt.New(newPeer().mutex, adapt.WithRefused(nil))
	require.ErrorContains(t, err, "WithRefused is nil")
}

func TestWithoutSequencerNothingIsLocked(t *testing.T) {
	t.Parallel()
	p := newPeer()
	l := newLocker(t, newBackend(t, p), lock.WithGuards(guard.NewMemory()))
	_, err := l.TryAcquire(t.Context(), "sku-42")
	require.ErrorContains(t, err, "lock.WithSequencer")
	require.NoError(t, l.Close())
	require.True(t, p.free("sku-42"), "what was locked in vain is unlocked")
}

func TestTheLeaseOfAForeignLockIsFenced(t *testing.T) {
	t.Parallel()
	p, store := newPeer(), guard.NewMemory()
	l := newLocker(t, newBackend(t, p), lock.WithSequencer(newSequencer(t)), lock.WithGuards(store))

	first, err := l.Acquire(t.Context(), "sku-42")
	require.NoError(t, err)
	p.take("sku-42", "somebody else")
	_, err = l.TryAcquire(t.Context(), "sku-42")
	require.ErrorIs(t, err, lock.ErrHeld)
	require.ErrorIs(t, first.Release(t.Context()), lock.ErrLost, "the peer says that it is another's")
	require.False(t, p.free("sku-42"), "a release leaves the lock of another alone")

	p.drop("sku-42")
	second, err := l.Acquire(t.Context(), "sku-42")
	require.NoError(t, err)
	require.Greater(t, second.Fence().Token, first.Fence().Token)
	late := guard.NewContext(t.Context(), first.Fence())
	require.ErrorIs(t, store.Write(late, "sku-42", func() error { return nil }), guard.ErrStale)
	require.NoError(t, second.Release(t.Context()))
	require.True(t, p.free("sku-42"))
}

// S15: between the grant and the token the lock went to another, who drew a
// token too. Whoever lost it must not get a lease.
func TestS15_ALockThatIsLostBeforeItsTokenIsNoLease(t *testing.T) {
	t.Parallel()
	p := newPeer()
	l := newLocker(t, newBackend(t, p), lock.WithSequencer(stolen{newSequencer(t), p}), lock.WithGuards(guard.NewMemory()))
	_, err := l.TryAcquire(t.Context(), "sku-42")
	require.ErrorIs(t, err, lock.ErrLost)
	require.NoError(t, l.Close())
	require.False(t, p.free("sku-42"), "the other keeps it")
}

// stolen gives the lock to another while a token is drawn.
type stolen struct {
	sequencer.Sequencer
	peer *peer
}

func (s stolen) Next(ctx context.Context, resource string, after guard.Token) (guard.Token, error) {
	s.peer.take(resource, "somebody else")
	return s.Sequencer.Next(ctx, resource, after)
}

// S21: the reply to the first attempt is lost. A second one of the library would
// find its own value and take that for another's.
func TestS21_ARepeatedAcquireFindsItsOwnLock(t *testing.T) {
	t.Parallel()
	p := newPeer()
	b, r, lost := newBackend(t, p), request(), errors.New("reply lost")
	p.after = func(string) error { return lost }
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, lost)
	p.after = nil
	for range 2 {
		_, err = b.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.False(t, p.free(r.Resource))
	}
	require.NoError(t, b.Release(t.Context(), r))
	require.True(t, p.free(r.Resource))
}

func TestWhatThePeerDoesNotSayIsUnknown(t *testing.T) {
	t.Parallel()
	p := newPeer()
	b, r, down := newBackend(t, p), request(), errors.New("connection refused")
	_, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	p.before = func(string) error { return down }
	for what, err := range map[string]error{"renew": b.Renew(t.Context(), r), "release": b.Release(t.Context(), r)} {
		require.ErrorIs(t, err, down, what)
		require.NotErrorIs(t, err, lock.ErrLost, what)
		require.ErrorContains(t, err, fmt.Sprintf("adapt: %s %q", what, r.Resource))
	}
	_, err = b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, down)
	require.NotErrorIs(t, err, lock.ErrHeld)
}

// One call that hangs, whatever its context, holds up the next one only until the
// end of the next one's context.
func TestAHangingCallHoldsNobodyUpForEver(t *testing.T) {
	t.Parallel()
	p := newPeer()
	b, r := newBackend(t, p), request()
	_, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	hangs, resume := make(chan struct{}), make(chan struct{})
	p.before = func(call string) error {
		if call == "extend" {
			close(hangs)
			<-resume
		}
		return nil
	}
	renewed := make(chan error, 1)
	go func() { renewed <- b.Renew(context.Background(), r) }()
	<-hangs
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Release(ctx, r), context.DeadlineExceeded)
	close(resume)
	require.NoError(t, <-renewed)
	require.NoError(t, b.Release(t.Context(), r))
}

func TestAHolderElsewhereIsUnnamed(t *testing.T) {
	t.Parallel()
	p := newPeer()
	b := newBackend(t, p)
	p.take("theirs", "somebody else")
	r := request()
	r.Resource = "theirs"
	_, err := b.Acquire(t.Context(), r)
	held, ok := errors.AsType[*lock.HeldError](err)
	require.True(t, ok)
	require.Equal(t, lock.HeldError{Resource: "theirs"}, *held, "nothing is known of a holder elsewhere")
}

func TestAbandonedGrantsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, newPeer())
		for i := range 1000 {
			r := request()
			r.Resource, r.TTL = fmt.Sprint(i), time.Second
			_, err := b.Acquire(t.Context(), r)
			require.NoError(t, err)
			time.Sleep(time.Second / 10)
		}
		require.Less(t, adapt.Grants(b), 100)
	})
}
