//go:build unix

package zklock_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
)

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
