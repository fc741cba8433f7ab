//go:build linux || darwin

package filelock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the time since the host was booted, without that of its suspension.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
