//go:build !unix

package demo

import (
	"os"
	"syscall"
)

// canFreeze is false where a process cannot be stopped from outside: a worker
// then just gets nothing to do, and its lease is not renewed.
const canFreeze = false

func freeze(*os.Process) error { return nil }

func wake(*os.Process) error { return nil }

func ownGroup() *syscall.SysProcAttr { return nil }
