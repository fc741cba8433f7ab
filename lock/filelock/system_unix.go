//go:build linux || darwin

package filelock

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// noFollow: whoever may write the directory must not lead us elsewhere.
const noFollow = unix.O_NOFOLLOW

const (
	exclusive = unix.LOCK_EX
	shared    = unix.LOCK_SH
)

var errLocked = unix.EWOULDBLOCK

// flock locks f without waiting. The lock belongs to the open file: two of one
// process exclude each other too, and it ends when f is closed.
func flock(f *os.File, how int) error {
	for {
		// Through the descriptor's own accessor, so that f cannot be closed meanwhile.
		var err error
		raw, connErr := f.SyscallConn()
		if connErr != nil {
			return connErr
		}
		if connErr = raw.Control(func(fd uintptr) { err = unix.Flock(int(fd), how|unix.LOCK_NB) }); connErr != nil {
			return connErr
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sinceBoot is the time since the host was booted, of which suspension is a part.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// checkFileSystem refuses those whose files other hosts have too.
func checkFileSystem(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if name := networkFileSystem(&s); name != "" {
		return fmt.Errorf("it is on %s, a network file system, where these locks do not hold; choose a directory on a disk of this host", name)
	}
	return nil
}
