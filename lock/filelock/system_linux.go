package filelock

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const bootClock = unix.CLOCK_MONOTONIC // and not CLOCK_BOOTTIME, which goes on while the host is suspended

// clockName names the boot, and the time namespace, which has an offset of its own.
func clockName() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	namespace, _ := os.Readlink("/proc/self/ns/time") // before Linux 5.6 there is one time
	return string(bytes.TrimSpace(boot)) + " " + namespace, nil
}
