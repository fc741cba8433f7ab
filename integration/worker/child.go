package worker

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// A child is a process of ours.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait
}

// startChild starts cmd and runs listen, which returns at the end of its output.
func startChild(cmd *exec.Cmd, listen func()) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = attributes()
	started := make(chan error, 1)
	go func() {
		// The kernel ends a child together with the *thread* that forked it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		listen()
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, <-started
}

// signal does nothing if the child has ended.
func (c *child) signal(s syscall.Signal) error {
	err := c.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
