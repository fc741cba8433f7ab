//go:build unix

package main

import (
	"os"
	"syscall"
)

// freeze stops a process as it is, every thread of it.
func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
