package freeze

import "syscall"

// attributes keep a Ctrl-C at the terminal from the children, which their parent ends.
// Should it be killed itself, the kernel kills them: to hang up a group that is stopped
// and orphaned, as elsewhere, it would have to be orphaned, which it is not in a
// container whose first process is of the same session.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
