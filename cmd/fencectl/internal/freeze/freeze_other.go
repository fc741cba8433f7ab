//go:build !unix

package freeze

import (
	"os"
	"syscall"
)

// Possible reports whether this system can stop a process from outside.
const Possible = false

// Stop does nothing.
func Stop(*os.Process) error { return nil }

// Wake does nothing.
func Wake(*os.Process) error { return nil }

func attributes() *syscall.SysProcAttr { return nil }
