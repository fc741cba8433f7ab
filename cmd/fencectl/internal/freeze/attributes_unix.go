//go:build unix && !linux

package freeze

import "syscall"

// attributes keep a Ctrl-C at the terminal from the children, which their parent ends.
// Should it be killed itself, the system hangs up a group of its own even if that is
// stopped.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
