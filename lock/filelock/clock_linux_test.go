package filelock_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-fencing/fencing/lock/filelock"
)

// The time of a lock stands still while the host is suspended, as that of package time, by
// which its holder presumes it lost. A time namespace is a host that has slept for a day.
func TestTimeStandsStillWhileTheHostIsSuspended(t *testing.T) {
	t.Parallel()
	const inside = "FILELOCK_TEST_SLEPT"
	slept := []string{"-T", "--boottime", "86400", "--fork"}
	if os.Getenv(inside) == "" {
		if err := exec.CommandContext(t.Context(), "unshare", append(slept, "true")...).Run(); err != nil {
			t.Skipf("only root may make a time namespace: %v", err)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", append(slept, os.Args[0], "-test.run=^"+t.Name()+"$")...)
		cmd.Env = append(os.Environ(), inside+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	read := func(clock int32) time.Duration {
		var now unix.Timespec
		require.NoError(t, unix.ClockGettime(clock, &now))
		return time.Duration(now.Nano())
	}
	got, err := filelock.SinceBoot()
	require.NoError(t, err)
	require.InDelta(t, read(unix.CLOCK_MONOTONIC), got, float64(time.Minute))
	require.Greater(t, read(unix.CLOCK_BOOTTIME)-got, 23*time.Hour)
}
