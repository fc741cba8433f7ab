//go:build unix

package main

import (
	"os"
	"syscall"
)

// ownGroup lets a command be ended together with what it has started.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func terminate(p *os.Process, group bool) { send(p, group, syscall.SIGTERM) }

func kill(p *os.Process, group bool) { send(p, group, syscall.SIGKILL) }

func send(p *os.Process, group bool, s syscall.Signal) {
	if group {
		_ = syscall.Kill(-p.Pid, s) // it may have ended
		return
	}
	_ = p.Signal(s)
}

// killed reports whether a signal has ended the process.
func killed(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled()
}

// codeOf is the exit code as a shell has it.
func codeOf(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
