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

// killed reports what is known here: no process gets a signal that it could take.
func killed(*os.ProcessState) bool { return true }

func codeOf(s *os.ProcessState) int { return s.ExitCode() }
