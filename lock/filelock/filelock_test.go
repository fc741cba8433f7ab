package filelock_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
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

// childEnv makes the test binary a process that acquires the lock in that
// directory, prints its fence, and then what becomes of it. "join" in its input
// makes it say that it has joined the fence that follows.
const childEnv = "FILELOCK_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Println(err)
		}
		return
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	ttl, err := time.ParseDuration(os.Getenv(childEnv + "_TTL"))
	if err != nil {
		return err
	}
	b, err := filelock.New(dir)
	if err != nil {
		return err
	}
	if os.Getenv(childEnv+"_LIMIT") != "" {
		filelock.LimitFileSize()
		_, err := b.Acquire(context.Background(), request())
		return err
	}
	l, err := lock.New(b, lock.WithTTL(ttl), lock.WithHolder("the child"))
	if err != nil {
		return err
	}
	var s *lock.Lease
	if text := os.Getenv(childEnv + "_JOIN"); text != "" {
		var f guard.Fence
		if err := f.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		s, err = l.Join(context.Background(), f)
	} else {
		s, err = l.Acquire(context.Background(), resource)
	}
	if err != nil {
		return err
	}
	text, err := s.Fence().MarshalText()
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	end := make(chan error, 1)
	go func() { // the parent closes our input to make us release
		_, _ = io.Copy(io.Discard, os.Stdin)
		end <- s.Release(context.Background())
	}()
	select {
	case <-s.Lost():
		return errors.New("lost")
	case err := <-end:
		fmt.Println("released")
		return err
	}
}

type process struct {
	*exec.Cmd
	in    io.Closer
	out   *bufio.Scanner
	fence guard.Fence
}

// start starts a child and waits until it has the lock.
func start(t *testing.T, dir string, ttl time.Duration, env ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0])}
	p.Env = append(append(os.Environ(), childEnv+"="+dir, childEnv+"_TTL="+ttl.String()), env...)
	in, err := p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	p.in, p.out = in, bufio.NewScanner(out)
	line := p.line(t)
	require.NoError(t, p.fence.UnmarshalText([]byte(line)), line)
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	require.True(t, p.out.Scan(), "the child has ended: %v", p.out.Err())
	return p.out.Text()
}

// A killed holder's lock is free at once, however long its TTL.
func TestAKilledHoldersLockIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, lock.MaxTTL)
	l := locker(t, open(t, dir))
	_, err := l.TryAcquire(t.Context(), resource)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.ErrorContains(t, err, "the child, expires in")
	require.NoError(t, p.Process.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	s, err := l.Acquire(ctx, resource)
	require.NoError(t, err)
	require.Equal(t, p.fence.Token+1, s.Fence().Token)
	require.NoError(t, s.Release(ctx))
}

func TestAHolderInAnotherProcessReleases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, time.Hour)
	l := locker(t, open(t, dir), lock.WithRetryWait(5*time.Millisecond))
	got := make(chan error, 1)
	go func() { got <- l.Do(t.Context(), resource, func(context.Context) error { return nil }) }()
	require.NoError(t, p.in.Close())
	require.Equal(t, "released", p.line(t))
	require.NoError(t, <-got)
}

// One who joined keeps the lock when the one who acquired is killed, and the other
// way round.
func TestTheLockOutlivesAKilledMember(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	p := start(t, dir, time.Hour)
	l, other := locker(t, b), locker(t, open(t, dir))
	s, err := l.Join(t.Context(), p.fence)
	require.NoError(t, err)
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, 2, h.Members)
	require.NoError(t, p.Process.Kill())
	_ = p.Wait()
	_, err = other.TryAcquire(t.Context(), resource)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, s.Release(t.Context()))

	s, err = other.TryAcquire(t.Context(), resource)
	require.NoError(t, err)
	text, err := s.Fence().MarshalText()
	require.NoError(t, err)
	p = start(t, dir, time.Hour, childEnv+"_JOIN="+string(text))
	require.NoError(t, p.Process.Kill())
	_ = p.Wait()
	_, err = l.TryAcquire(t.Context(), resource)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, s.Release(t.Context()))
	require.NoError(t, l.Do(t.Context(), resource, func(context.Context) error { return nil }))
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

func TestBadRequestsMakeNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	for says, spoil := range map[string]func(r *lock.Request){
		"TTL 0s":             func(r *lock.Request) { r.TTL = 0 },
		"TTL 2562047h":       func(r *lock.Request) { r.TTL = math.MaxInt64 },
		"above -5":           func(r *lock.Request) { r.After = -5 },
		"the nonce is empty": func(r *lock.Request) { r.Nonce = "" },
		"control character":  func(r *lock.Request) { r.Resource = "a\x00b" },
		"resource name":      func(r *lock.Request) { r.Resource = "" },
	} {
		r := request()
		spoil(&r)
		_, err := b.Acquire(t.Context(), r)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	require.ErrorIs(t, b.Renew(t.Context(), request()), lock.ErrLost)
	require.ErrorIs(t, b.Release(t.Context(), request()), lock.ErrLost)
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, lock.Holding{Resource: resource}, h)
	require.Zero(t, count(t, dir, ".lock"))
	_, err = lock.New(b, lock.WithFair())
	require.ErrorContains(t, err, "WithFair")
}
