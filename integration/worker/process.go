package worker

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/go-fencing/fencing/internal/child"
)

// A process is a child of ours.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait
}

// start starts cmd and runs listen, which returns at the end of its output.
func start(cmd *exec.Cmd, listen func()) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	return p, child.Start(cmd, func() {
		listen()
		p.err = cmd.Wait()
		close(p.done)
	})
}

// signal does nothing if the child has ended.
func (p *process) signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
