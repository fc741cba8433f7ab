//go:build unix

package freeze

import (
	"os"
	"syscall"
)

// Possible reports whether this system can stop a process from outside.
const Possible = true

// Stop freezes a process.
func Stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Wake undoes Stop.
func Wake(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
