package pglock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
)

// childEnv makes the test binary a process that acquires the lock, says under which
// fence, and holds it.
const childEnv = "PGLOCK_TEST_CHILD_DATABASE"

const childTTL = 2 * time.Second

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		if err := hold(url); err != nil {
			fmt.Println(err)
		}
		return
	}
	servertest.Main(m)
}

func hold(url string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	b, err := pglock.New(pool, pglock.WithRaise())
	if err != nil {
		return err
	}
	l, err := lock.New(b, lock.WithTTL(childTTL))
	if err != nil {
		return err
	}
	s, err := l.Acquire(ctx, resource)
	if err != nil {
		return err
	}
	text, err := s.Fence().MarshalText()
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	<-s.Lost()
	return s.Release(ctx)
}

// A holder in another process that is killed: its lock ends with its TTL, its
// fence with the next acquisition.
func TestAKilledHoldersLockEndsWithItsTTL(t *testing.T) {
	t.Parallel()
	url := database(t)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+url)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var fence guard.Fence
	require.NoError(t, fence.UnmarshalText([]byte(line[:len(line)-1])), line)

	pool := connect(t, url)
	b := open(t, pool, pglock.WithRaise())
	l := locker(t, b)
	_, err = l.TryAcquire(t.Context(), resource)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.ErrorContains(t, err, fence.Holder)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), childTTL+within)
	defer cancel()
	s, err := l.Acquire(ctx, resource)
	require.NoError(t, err)
	require.Greater(t, s.Fence().Token, fence.Token)
	require.ErrorIs(t, b.Renew(ctx, lock.Request{Resource: resource, Nonce: fence.Nonce, TTL: time.Minute}), lock.ErrLost)
	require.ErrorIs(t, store(t, pool).InTx(guard.NewContext(ctx, fence), nothing), guard.ErrStale)
	require.NoError(t, s.Release(ctx))
}
