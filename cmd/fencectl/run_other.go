//go:build !unix

package main

import (
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

// terminate has no gentle way here.
func terminate(p *os.Process, _ bool) { _ = p.Kill() }

func kill(p *os.Process, _ bool) { _ = p.Kill() }

func codeOf(s *os.ProcessState) int { return s.ExitCode() }
