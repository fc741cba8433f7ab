//go:build linux || darwin

package filelock

import (
	"os/signal"

	"golang.org/x/sys/unix"
)

// LimitFileSize makes every write beyond the first bytes of a file fail.
func LimitFileSize() {
	signal.Ignore(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 300, Max: 300}); err != nil {
		panic(err)
	}
}
