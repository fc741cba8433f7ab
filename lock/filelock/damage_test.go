//go:build linux || darwin

package filelock_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/filelock"
)

// A holder that is alive but paused past its TTL has lost the lock, and is told so
// when it goes on.
func TestS1_APausedHolderLosesTheLockAtItsTTL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, time.Second)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	b := open(t, dir)
	r := request()
	require.Eventually(t, func() bool { _, err := b.Acquire(t.Context(), r); return err == nil }, within, 10*time.Millisecond)
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Greater(t, h.Token, p.fence.Token)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "lost", p.line(t))
	require.NoError(t, b.Renew(t.Context(), r))
}

// fill leaves no space in the file system of dir until the file that it returns is removed.
func fill(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	require.NoError(t, err)
	for err == nil {
		_, err = f.WriteString(strings.Repeat("x", 512))
	}
	require.NoError(t, f.Close())
	return filler
}

// occupy locks a file, as a process does that is stopped while it has it.
func occupy(t *testing.T, path string) (free func()) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return func() { require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_UN)) }
}

// A process is stopped while it has the file: nobody can have the lock then, but
// nobody hangs either.
func TestABusyFileCountsAsHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	free := occupy(t, lockFile(t, dir))
	_, err := b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
	require.ErrorContains(t, err, "stopped in the middle")
	err = b.Renew(t.Context(), r)
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrLost, "it may be tried again")
	free()
	require.NoError(t, b.Renew(t.Context(), r))
}

func TestWhatIsNoLockFileIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	require.NoError(t, b.Release(t.Context(), r))
	path := lockFile(t, dir)
	valid, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, text := range map[string][]byte{
		"a text":          []byte("precious"),
		"a long text":     bytes.Repeat([]byte("precious "), 200),
		"a cut header":    valid[:100],
		"another counter": bytes.Replace(valid, []byte("\n1\n"), []byte("\n2\n"), 1),
		"a negative one":  bytes.Replace(valid, []byte("\n1\n"), []byte("\n-1\n"), 1),
		"huge":            append(valid, make([]byte, 2<<20)...),
	} {
		require.NoError(t, os.WriteFile(path, text, 0o644))
		_, err := b.Acquire(t.Context(), request())
		require.ErrorContains(t, err, "no lock; nothing was changed", name)
		require.ErrorContains(t, err, path)
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Error(t, b.Renew(t.Context(), r))
		require.Error(t, b.Release(t.Context(), r))
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, after, name)
	}
	for name, text := range map[string][]byte{"empty": nil, "zeroes of a crash": make([]byte, 700)} {
		require.NoError(t, os.WriteFile(path, text, 0o644))
		require.EqualValues(t, 1, acquire(t, b, r), name)
		require.NoError(t, b.Release(t.Context(), r))
	}
}

// The crash of a host may tear the lease, which ended with the host, but never the
// counter.
func TestATornLeaseIsNoneAndTheCounterStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	r.After = 41
	require.EqualValues(t, 42, acquire(t, b, r))
	path := lockFile(t, dir)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, n := range []int{512, 513, 530, len(text) - 20} {
		require.NoError(t, os.WriteFile(path, text[:n], 0o644))
		next := request()
		require.EqualValues(t, 43, acquire(t, b, next), "cut to %d", n)
		require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	}
}

// After a reboot no process is alive, whatever the clock says; a process of another
// time namespace has another clock, but it lives.
func TestAnotherClockIsNotCompared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	r.TTL = time.Millisecond
	acquire(t, b, r)
	filelock.SetClock(t, b, "another")
	h, err := b.Inspect(t.Context(), resource)
	require.NoError(t, err)
	require.Equal(t, 1, h.Members, "alive, so it counts although its time cannot be told")
	require.Zero(t, h.Remaining)
	require.NoError(t, b.Renew(t.Context(), r), "and is written by our clock now")
	require.Eventually(t, func() bool { _, err := b.Acquire(t.Context(), request()); return err == nil }, within, 5*time.Millisecond)

	dir = t.TempDir()
	p := start(t, dir, time.Hour)
	require.NoError(t, p.Process.Kill())
	_ = p.Wait()
	b = open(t, dir)
	filelock.SetClock(t, b, "after a reboot")
	acquire(t, b, request())
}

func TestADeletedFileIsNotUsedAnyMore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	require.NoError(t, os.Remove(lockFile(t, dir)))
	require.ErrorIs(t, b.Renew(t.Context(), r), lock.ErrLost)
	acquire(t, b, request())
}

// The file is deleted while somebody waits for it: then the next one to come has
// another, and the old one is no lock any more.
func TestAWaiterForADeletedFileUsesTheNewOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	require.NoError(t, b.Release(t.Context(), r))
	path := lockFile(t, dir)
	free := occupy(t, path)
	got := make(chan error, 1)
	go func() {
		_, err := b.Acquire(t.Context(), request())
		got <- err
	}()
	require.Eventually(t, func() bool { return filelock.Descriptors(t, path) > 1 || len(got) > 0 }, within, time.Millisecond)
	require.NoError(t, os.Remove(path))
	acquire(t, open(t, dir), request())
	free()
	require.ErrorIs(t, <-got, lock.ErrHeld)
}

func TestNobodyIsLedElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	path := lockFile(t, dir)
	require.NoError(t, os.Remove(path))
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, nil, 0o644))
	require.NoError(t, os.Symlink(victim, path))
	_, err := b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, unix.ELOOP)
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Empty(t, text)
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o644))
	_, err = b.Acquire(t.Context(), request())
	require.ErrorContains(t, err, "no lock")
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(plain, nil, 0o644))
	for says, f := range map[string]func() (*filelock.Backend, error){
		"no such file or directory": func() (*filelock.Backend, error) { return filelock.New(filepath.Join(dir, "missing")) },
		"it is no directory":        func() (*filelock.Backend, error) { return filelock.New(plain) },
		"jump 0 is not positive":    func() (*filelock.Backend, error) { return filelock.New(dir, filelock.WithMaxJump(0)) },
		"option is nil":             func() (*filelock.Backend, error) { return filelock.New(dir, nil) },
		"it has no name":            func() (*filelock.Backend, error) { return filelock.New("") },
	} {
		_, err := f()
		require.ErrorContains(t, err, says)
	}
	_, err := filelock.New("/proc/self")
	require.ErrorContains(t, err, `filelock: directory "/proc/self": open`, "an unwritable one")
}

// A full disk grants nothing, and is usable again when it has space.
func TestAFullDiskGrantsNothing(t *testing.T) {
	t.Parallel()
	dir := filelock.TinyFileSystem(t)
	b := open(t, dir)
	filler := fill(t, dir)
	_, err := b.Acquire(t.Context(), request())
	require.True(t, errors.Is(err, unix.ENOSPC), "%v", err)
	require.NoError(t, os.Remove(filler))
	require.EqualValues(t, 1, acquire(t, b, request()))
}

// The first write is cut short: what is left must not look like somebody's data.
func TestAFirstWriteThatFailsLeavesNoGarbage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, childEnv+"_TTL=1h", childEnv+"_LIMIT=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "file too large")
	require.EqualValues(t, 1, acquire(t, open(t, dir), request()))
}
