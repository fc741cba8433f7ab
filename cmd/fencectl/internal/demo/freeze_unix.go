//go:build unix

package demo

import (
	"os"
	"syscall"
)

const canFreeze = true

func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func wake(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// ownGroup keeps a Ctrl-C at the terminal from the workers: the director ends
// them. Should it be killed itself, the system hangs up a group of its own even
// if that is stopped.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
