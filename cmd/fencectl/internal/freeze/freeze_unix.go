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

// attributes keep a Ctrl-C at the terminal from the children, which their parent ends.
// Should it be killed itself, the system hangs up a group of its own even if that is
// stopped, where internal/child knows nothing better.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
