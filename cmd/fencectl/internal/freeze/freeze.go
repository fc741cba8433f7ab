// Package freeze starts child processes that can be stopped as a long pause of their
// runtime or their host would, and that end with their parent even then.
package freeze

import (
	"os/exec"

	"github.com/go-fencing/fencing/internal/child"
)

// Start starts cmd and then, on a goroutine of its own, runs listen, which returns once
// the process has ended.
func Start(cmd *exec.Cmd, listen func()) error {
	cmd.SysProcAttr = attributes()
	return child.Start(cmd, listen)
}
