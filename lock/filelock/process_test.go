package filelock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/filelock"
)

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
