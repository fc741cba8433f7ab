// Package freeze starts child processes that can be stopped as a long pause of their
// runtime or their host would, and that end with their parent even then.
package freeze

import (
	"os/exec"
	"runtime"
)

// Start starts cmd and then, on a goroutine of its own, runs listen, which returns once
// the process has ended.
func Start(cmd *exec.Cmd, listen func()) error {
	cmd.SysProcAttr = attributes()
	started := make(chan error, 1)
	go func() {
		// Linux ends a child together with the *thread* that forked it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			listen()
		}
	}()
	return <-started
}
