// Package child starts processes that end with their parent, where the system can see
// to that: also when the parent is killed, or the child is stopped then.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts cmd and then, on a goroutine of its own, runs wait, which returns once
// the process has ended.
func Start(cmd *exec.Cmd, wait func()) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	endWithParent(cmd.SysProcAttr)
	started := make(chan error, 1)
	go func() {
		// Linux ends a child together with the *thread* that forked it, and Go ends
		// threads as it likes. So the goroutine that waits forks too, and keeps the
		// thread until the child has gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}
