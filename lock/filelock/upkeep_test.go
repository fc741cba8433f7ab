//go:build linux || darwin

package filelock_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/filelock"
)

// Somebody cleans up the directory. Without the file that says that the process is alive
// its next lock would be free to all.
func TestTheFileOfALivingProcessIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	clean := func() {
		names, err := filepath.Glob(filepath.Join(dir, "*.alive"))
		require.NoError(t, err)
		require.Len(t, names, 1)
		require.NoError(t, os.Remove(names[0]))
	}
	clean()
	r := request()
	acquire(t, b, r)
	_, err := open(t, dir).Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)

	dir = t.TempDir()
	b = open(t, dir)
	acquire(t, b, r)
	clean()
	require.NoError(t, b.Renew(t.Context(), r))
	_, err = open(t, dir).Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
}

// The garbage collector closes files that nobody can reach any more.
func TestALockOutlivesItsBackEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acquire(t, open(t, dir), request())
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	_, err := open(t, dir).Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
}

// Others look at the file at the very moment at which it is made anew.
func TestTheFileIsMadeAnewThoughOthersLookAtIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	alive, err := filepath.Glob(filepath.Join(dir, "*.alive"))
	require.NoError(t, err)
	require.Len(t, alive, 1)
	require.NoError(t, os.Remove(alive[0]))
	require.NoError(t, os.WriteFile(alive[0], nil, 0o600))
	look := occupy(t, alive[0])
	renewed := make(chan error, 1)
	go func() { renewed <- b.Renew(t.Context(), r) }()
	require.Eventually(t, func() bool { return filelock.Descriptors(t, alive[0]) > 1 || len(renewed) > 0 }, within, time.Millisecond)
	look()
	require.NoError(t, <-renewed)
	_, err = open(t, dir).Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
}

// The file was opened, of a process that was dead, and is another one by now.
func TestAFileThatWasMadeAnewStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), request().Nonce+".alive")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	dead, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, dead.Close()) }()
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	filelock.Bury(dead)
	require.FileExists(t, path)
}

func TestOnlyFilesOfProcessesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	precious := filepath.Join(dir, "staying.alive")
	require.NoError(t, os.WriteFile(precious, nil, 0o600))
	dead := filepath.Join(dir, request().Nonce+".alive")
	require.NoError(t, os.WriteFile(dead, nil, 0o600))
	open(t, dir)
	require.FileExists(t, precious)
	require.NoFileExists(t, dead)
}

func TestCloseGivesUpWhatIsHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	acquire(t, open(t, dir), request())
	_, err := b.Acquire(t.Context(), lock.Request{Resource: "another", Nonce: "n", TTL: time.Hour})
	require.ErrorIs(t, err, fs.ErrClosed)
	names, err := filepath.Glob(filepath.Join(dir, "*.alive"))
	require.NoError(t, err)
	require.Len(t, names, 1)
}

// The record grows with each member. One that has no room leaves those who are there.
func TestAFullDiskCostsNobodyTheLock(t *testing.T) {
	t.Parallel()
	dir := filelock.TinyFileSystem(t)
	b, rival := open(t, dir), open(t, dir)
	r := request()
	acquire(t, b, r)
	fill(t, dir)
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 1000)
		err = b.Join(t.Context(), r, fmt.Sprintf("member-%026d", i))
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, b.Renew(t.Context(), r))
	_, err = rival.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
}

func TestARecordHasALimit(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir())
	r := request()
	acquire(t, b, r)
	var err error
	joined := 0
	for ; err == nil; joined++ {
		require.Less(t, joined, 1000)
		err = b.Join(t.Context(), r, fmt.Sprintf("%05d", joined)+strings.Repeat("x", 5000))
	}
	require.ErrorContains(t, err, "let some of them leave first")
	require.NoError(t, b.Renew(t.Context(), r))
	require.NoError(t, b.Leave(t.Context(), r, fmt.Sprintf("%05d", 0)+strings.Repeat("x", 5000)))
	require.NoError(t, b.Release(t.Context(), r))
}

// Another process is paused while it has the file, for longer than an acquisition waits.
func TestAReleaseWaitsForABusyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := open(t, dir)
	r := request()
	acquire(t, b, r)
	free := occupy(t, lockFile(t, dir))
	_, err := b.Acquire(t.Context(), request())
	require.ErrorIs(t, err, lock.ErrHeld)
	released := make(chan error, 1)
	go func() { released <- b.Release(t.Context(), r) }()
	require.Error(t, b.Renew(t.Context(), r), "which waits for as long as an acquisition")
	free()
	require.NoError(t, <-released)
	acquire(t, open(t, dir), request())
}
