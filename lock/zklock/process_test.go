package zklock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// childEnv makes the test binary a process that acquires the lock childEnv names, says
// under which fence, holds it, and says how it was lost.
const (
	childEnv   = "ZKLOCK_TEST_CHILD_SERVERS"
	childLock  = "ZKLOCK_TEST_CHILD_LOCK"
	childTTL   = 1500 * time.Millisecond
	childGrace = 2 * time.Second // the session
)

func TestMain(m *testing.M) {
	if servers := os.Getenv(childEnv); servers != "" {
		if err := hold(strings.Split(servers, ","), os.Getenv(childLock)); err != nil {
			fmt.Println(err)
		}
		return
	}
	servertest.Main(m)
}

func hold(servers []string, name string) error {
	ctx := context.Background()
	b, err := zklock.New(servers, zklock.WithSessionTimeout(childGrace))
	if err != nil {
		return err
	}
	l, err := lock.New(b, lock.WithTTL(childTTL))
	if err != nil {
		return err
	}
	s, err := l.Acquire(ctx, name)
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

// A holder in another process is killed, or paused: the end of its session frees its
// lock, and the one who comes back is told that it is lost, and fenced.
func TestAHolderInAnotherProcessIsKilledOrPaused(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "paused": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, resource := servertest.ZooKeeper(t), request().Resource
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), childEnv+"="+strings.Join(servers, ","), childLock+"="+resource)
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			lines := bufio.NewReader(out)
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			var fence guard.Fence
			require.NoError(t, fence.UnmarshalText([]byte(line[:len(line)-1])), line)

			store := guard.NewMemory()
			require.NoError(t, store.Raise(t.Context(), fence))
			l := locker(t, open(t, servers), lock.WithGuards(store))
			_, err = l.TryAcquire(t.Context(), resource)
			require.ErrorIs(t, err, lock.ErrHeld)
			require.ErrorContains(t, err, fence.Holder)
			require.NoError(t, child.Process.Signal(sig))
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			s, err := l.Acquire(ctx, resource)
			require.NoError(t, err)
			require.Greater(t, s.Fence().Token, fence.Token)
			late := guard.NewContext(ctx, fence)
			require.ErrorIs(t, store.Write(late, resource, func() error { return nil }), guard.ErrStale)
			if sig == syscall.SIGSTOP {
				require.NoError(t, child.Process.Signal(syscall.SIGCONT))
				line, err = lines.ReadString('\n')
				require.NoError(t, err)
				require.Contains(t, line, "is lost")
			}
			_ = child.Wait()
			_, err = l.TryAcquire(ctx, resource)
			require.ErrorIs(t, err, lock.ErrHeld, "the lock of the successor")
			require.NoError(t, s.Release(ctx))
		})
	}
}
