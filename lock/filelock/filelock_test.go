package filelock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/filelock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/sequencer"
)

const (
	resource = "inventory:sku-42"
	within   = 20 * time.Second
)

func open(t testing.TB, dir string, opts ...filelock.Option) *filelock.Backend {
	t.Helper()
	b, err := filelock.New(dir, opts...)
	require.NoError(t, err)
	return b
}

func request() lock.Request {
	return lock.Request{Resource: resource, Nonce: rand.Text(), Holder: "worker-1", TTL: time.Hour}
}

func acquire(t testing.TB, b *filelock.Backend, r lock.Request) guard.Token {
	t.Helper()
	token, err := b.Acquire(t.Context(), r)
	require.NoError(t, err)
	return token
}

func locker(t testing.TB, b *filelock.Backend, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l, err := lock.New(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// lockFile returns the path of the only lock file in dir.
func lockFile(t testing.TB, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	return names[0]
}

func TestBackend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locktest.Run(t, func(t *testing.T) lock.Backend { return open(t, dir) })
}

func TestManyProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var (
		mu     sync.Mutex
		inside int
		tokens []guard.Token
		wg     sync.WaitGroup
	)
	for range 4 { // back ends do not know of each other, like processes
		l := locker(t, open(t, dir), lock.WithRetryWait(time.Millisecond))
		for range 5 {
			wg.Go(func() {
				s, err := l.Acquire(t.Context(), resource)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside++
				if inside > 1 {
					t.Error("two holders at once")
				}
				tokens = append(tokens, s.Fence().Token)
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				if err := s.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for i, token := range tokens {
		require.EqualValues(t, i+1, token)
	}
}

// The file stays, since to delete it would hand out its tokens again.
func TestTokensGoOnInANewProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 3 {
		b := open(t, dir)
		r := request()
		require.EqualValues(t, i+1, acquire(t, b, r))
		require.NoError(t, b.Release(t.Context(), r))
	}
	lockFile(t, dir)
}

// The waiters of one back end are woken; a waiter that only polls would not get the
// lock before the end of the test.
func TestAReleaseWakesAWaiterOfTheSameProcess(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	one, two := locker(t, b), locker(t, b, lock.WithRetryWait(lock.MaxTTL))
	s, err := one.Acquire(t.Context(), resource)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- two.Do(ctx, resource, func(context.Context) error { return nil }) }()
	require.NoError(t, s.Release(ctx))
	require.NoError(t, <-got)
}

// Of a lock that another process holds, a waiter must not count on being woken.
func TestOnlyOurOwnReleasesWake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine, other := open(t, dir), open(t, dir)
	r := request()
	acquire(t, mine, r)
	silent := func(b *filelock.Backend) bool {
		_, err := b.Acquire(t.Context(), request())
		held, ok := errors.AsType[*lock.HeldError](err)
		require.True(t, ok, "%v", err)
		return held.Silent
	}
	require.False(t, silent(mine))
	require.True(t, silent(other))
	require.NoError(t, other.Join(t.Context(), r, "second"))
	require.True(t, silent(mine), "the last one out may be the other")
}

func TestOddNamesStayInTheirDirectory(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "locks[1]*")
	require.NoError(t, os.Mkdir(dir, 0o755))
	b := open(t, dir)
	names := []string{"../up", "/etc/passwd", ".", "..", ".hidden", "a/b", "A/B", "a_b", "A_B", `a\b`, "ä", strings.Repeat("x", 512), strings.Repeat("X", 512), "con", "~"}
	for i, name := range names {
		r := request()
		r.Resource = name
		acquire(t, b, r)
		require.Equal(t, i+1, count(t, dir, ".lock"), "%q has a file of its own, whatever the case", name)
	}
	require.Len(t, list(t, parent), 1)
	lower := make(map[string]bool)
	for _, name := range list(t, dir) {
		require.Less(t, len(name), 100)
		if strings.HasSuffix(name, ".lock") {
			require.Equal(t, strings.ToLower(name), name)
			lower[name] = true
		}
	}
	require.Len(t, lower, len(names))
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func count(t *testing.T, dir, suffix string) (n int) {
	t.Helper()
	for _, name := range list(t, dir) {
		if strings.HasSuffix(name, suffix) {
			n++
		}
	}
	return n
}

func TestTheFilesOfDeadProcessesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := open(t, dir)
	p := start(t, dir, time.Hour)
	require.Equal(t, 2, count(t, dir, ".alive"))
	require.NoError(t, p.Process.Kill())
	_ = p.Wait()
	other := open(t, dir)
	require.Equal(t, 2, count(t, dir, ".alive"), "that of the dead one has gone, those of the living have not")
	acquire(t, other, request())
	_, err := mine.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
}

func TestS18_ARefusedDemandLeavesTheCounterAsItWas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := request()
	r.After = math.MaxInt64 - 1
	_, err := open(t, dir).Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `filelock: acquire "inventory:sku-42"`)
	r.After = math.MaxInt64
	_, err = open(t, dir, filelock.WithMaxJump(math.MaxInt64)).Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
	require.EqualValues(t, 1, acquire(t, open(t, dir), request()))
}

func TestWhatIsNotAcquiredMakesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	bad := request()
	bad.TTL = 0
	_, err := b.Acquire(t.Context(), bad)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorIs(t, b.Renew(t.Context(), request()), lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, lock.Holding{Resource: resource}, h)
	require.Zero(t, count(t, dir, ".lock"))
	_, err = lock.New(b, lock.WithFair())
	require.ErrorContains(t, err, "WithFair")
}
