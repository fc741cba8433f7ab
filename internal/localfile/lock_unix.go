//go:build linux || darwin

package localfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NoFollow is a flag of os.OpenFile: whoever may write the directory must not lead us
// elsewhere.
const NoFollow = unix.O_NOFOLLOW

// How a file is locked.
const (
	Exclusive = unix.LOCK_EX
	Shared    = unix.LOCK_SH
)

// ErrLocked: somebody else has locked the file.
var ErrLocked error = unix.EWOULDBLOCK

// Lock locks f without waiting. The lock belongs to the open file: two of one
// process exclude each other too, and it ends when f is closed.
func Lock(f *os.File, how int) error {
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

// CheckFileSystem refuses those whose files other hosts have too.
func CheckFileSystem(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if name := networkFileSystem(&s); name != "" {
		return fmt.Errorf("it is on %s, which is or may be a network file system, where these locks do not hold; choose a directory on a disk of this host", name)
	}
	return nil
}
