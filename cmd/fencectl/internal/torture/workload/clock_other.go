//go:build !linux

package workload

import "time"

// Now returns nanoseconds on a clock that all processes of the machine share. It
// must not be set during a run.
func Now() int64 { return time.Now().UnixNano() }
