package filelock

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

const bootClock = unix.CLOCK_MONOTONIC // on macOS it goes on during sleep

// clockName names the boot.
func clockName() (string, error) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	return boot, nil
}

func networkFileSystem(s *unix.Statfs_t) string {
	name := unix.ByteSliceToString(s.Fstypename[:])
	if slices.Contains([]string{"nfs", "smbfs", "afpfs", "webdav", "cifs"}, name) {
		return name
	}
	return ""
}
