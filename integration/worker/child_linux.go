package worker

import "syscall"

// attributes let the kernel kill a worker that is stopped when its test dies: it
// would not notice the end of its input.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
