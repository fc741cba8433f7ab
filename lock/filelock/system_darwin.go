package filelock

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const bootClock = unix.CLOCK_UPTIME_RAW // CLOCK_MONOTONIC goes on during sleep here

// clockName names the boot.
func clockName() (string, error) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	return boot, nil
}
