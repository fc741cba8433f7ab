package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sequencedlock"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/adapt"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/sequencer/redisseq"
)

// adapted are the libraries, as their users would adapt them.
var adapted = map[string]func(rdb *redis.Client) (*adapt.Backend, error){
	"redsync":       adaptRedsync,
	"bsm/redislock": adaptBSM,
}

func adaptRedsync(rdb *redis.Client) (*adapt.Backend, error) {
	rs := redsync.New(goredis.NewPool(rdb))
	return adapt.New(func(resource, nonce string, ttl time.Duration) adapt.Mutex {
		return rs.NewMutex(resource, redsync.WithExpiry(ttl), redsync.WithValue(nonce),
			redsync.WithGenValueFunc(func() (string, error) { return nonce, nil }))
	}, adapt.WithRefused(func(err error) bool {
		_, taken := errors.AsType[*redsync.ErrTaken](err)
		return taken || errors.Is(err, redsync.ErrLockAlreadyExpired)
	}))
}

func adaptBSM(rdb *redis.Client) (*adapt.Backend, error) {
	client, locks := bsm.New(rdb), new(sync.Map)
	return adapt.New(func(resource, nonce string, ttl time.Duration) adapt.Mutex {
		return &bsmMutex{client: client, locks: locks, resource: resource, nonce: nonce, ttl: ttl}
	}, adapt.WithRefused(func(err error) bool {
		return errors.Is(err, bsm.ErrNotObtained) || errors.Is(err, bsm.ErrLockNotHeld)
	}))
}

// A bsmMutex is a lock of bsm/redislock, which can be extended and released by the
// *bsm.Lock alone that Obtain returned.
type bsmMutex struct {
	client          *bsm.Client
	locks           *sync.Map // *bsm.Lock by resource and nonce
	resource, nonce string
	ttl             time.Duration
	unknown         bool // Obtain failed, and may have obtained
}

func (m *bsmMutex) key() [2]string { return [2]string{m.resource, m.nonce} }

func (m *bsmMutex) TryLockContext(ctx context.Context) error {
	// Obtain takes over a lock whose value begins with its own token: the token
	// ends with a character that no nonce has.
	s, err := m.client.Obtain(ctx, m.resource, m.ttl, &bsm.Options{Token: m.nonce + "\n"})
	m.unknown = err != nil && !errors.Is(err, bsm.ErrNotObtained)
	if err == nil {
		m.locks.Store(m.key(), s)
	}
	return err
}

func (m *bsmMutex) ExtendContext(ctx context.Context) (bool, error) {
	s, ok := m.locks.Load(m.key())
	if !ok {
		return false, nil
	}
	err := s.(*bsm.Lock).Refresh(ctx, m.ttl, nil)
	return err == nil, err
}

func (m *bsmMutex) UnlockContext(ctx context.Context) (bool, error) {
	if m.unknown { // Obtain with the same token finds what it may have obtained
		if err := m.TryLockContext(ctx); err != nil {
			return false, err
		}
	}
	s, ok := m.locks.LoadAndDelete(m.key())
	if !ok {
		return false, nil
	}
	err := s.(*bsm.Lock).Release(ctx)
	return err == nil, err
}

func adaptedTo(t *testing.T, open func(*redis.Client) (*adapt.Backend, error)) (*redis.Client, *adapt.Backend, *redisseq.Sequencer) {
	t.Helper()
	rdb, err := client(servertest.Redis(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	b, err := open(rdb)
	require.NoError(t, err)
	seq, err := redisseq.New(rdb, redisseq.WithPrefix(rand.Text()))
	require.NoError(t, err)
	return rdb, b, seq
}

func TestAdaptedLibrariesAreBackEnds(t *testing.T) {
	t.Parallel()
	for name, open := range adapted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Run(t, func(t *testing.T) lock.Backend {
				_, b, seq := adaptedTo(t, open)
				return sequencedlock.New(b, seq)
			})
		})
	}
}

func TestAdaptedLibrariesAreFenced(t *testing.T) {
	t.Parallel()
	for name, open := range adapted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, resource, store := t.Context(), rand.Text(), guard.NewMemory()
			rdb, b, seq := adaptedTo(t, open)
			l, err := lock.New(b, lock.WithSequencer(seq), lock.WithGuards(store))
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })

			first, err := l.Acquire(ctx, resource)
			require.NoError(t, err)
			value, err := rdb.Get(ctx, resource).Result()
			require.NoError(t, err, "it is the library's own key")
			require.Contains(t, value, first.Fence().Nonce)
			require.NoError(t, rdb.Del(ctx, resource).Err()) // Redis forgets
			second, err := l.Acquire(ctx, resource)
			require.NoError(t, err)
			require.Greater(t, second.Fence().Token, first.Fence().Token)
			late := guard.NewContext(ctx, first.Fence())
			require.ErrorIs(t, store.Write(late, resource, func() error { return nil }), guard.ErrStale)
			require.ErrorIs(t, first.Release(ctx), lock.ErrLost)
			require.NoError(t, second.Release(ctx))
			require.Zero(t, rdb.Exists(ctx, resource).Val())
		})
	}
}

// An attempt whose reply is lost is undone by its nonce: nothing blocks the next one.
func TestAdaptedLibrariesForgetAnUnknownAttempt(t *testing.T) {
	t.Parallel()
	for name, open := range adapted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, b, _ := adaptedTo(t, open)
			lose := &loseReplies{}
			rdb.AddHook(lose)
			r := lock.Request{Resource: rand.Text(), Nonce: rand.Text(), TTL: time.Minute}
			lose.on.Store(true)
			_, err := b.Acquire(t.Context(), r)
			require.ErrorIs(t, err, errReplyLost)
			lose.on.Store(false)
			if err := b.Release(t.Context(), r); err != nil {
				require.ErrorIs(t, err, lock.ErrLost)
			}
			r.Nonce = rand.Text()
			_, err = b.Acquire(t.Context(), r)
			require.NoError(t, err)
		})
	}
}

// The numbers of the README's table.
func TestAdaptedLibrariesRoundTrips(t *testing.T) {
	t.Parallel()
	for name, open := range adapted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, b, seq := adaptedTo(t, open)
			l, err := lock.New(b, lock.WithSequencer(seq), lock.WithTTL(time.Hour))
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			count, resource := &loseReplies{}, rand.Text()
			rdb.AddHook(count)
			for i := range 2 { // the first time the server gets the scripts
				count.calls.Store(0)
				s, err := l.Acquire(t.Context(), resource)
				require.NoError(t, err)
				acquire := count.calls.Swap(0)
				require.NoError(t, s.Release(t.Context()))
				if i > 0 {
					require.EqualValues(t, 3, acquire, "lock, token, look again")
					require.EqualValues(t, 1, count.calls.Load(), "unlock")
				}
			}
		})
	}
}
