//go:build !linux

package child

import "syscall"

// endWithParent does nothing: the child stays in its parent's group, so that a Ctrl-C
// ends it too.
func endWithParent(*syscall.SysProcAttr) {}
