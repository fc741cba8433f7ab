package child

import "syscall"

// endWithParent has the kernel kill the child: one that is stopped would not notice the
// end of its input, and its group is hung up only if it is orphaned, which it is not in
// a container whose first process is of the same session. The group of its own keeps a
// Ctrl-C at the terminal from the child, which its parent ends in its own time.
func endWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
	attr.Setpgid = true
}
