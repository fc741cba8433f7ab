//go:build unix && !linux

package localserver

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// A relative is a process that a server forked. Its start time tells it apart
// from a later process with the same number.
type relative struct {
	pid     int
	started string
}

func children(parent int) ([]relative, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,lstart=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var found []relative
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			found = append(found, relative{pid, strings.Join(fields[2:], " ")})
		}
	}
	return found, nil
}

func (r relative) alive() bool {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(r.pid)).Output()
	return err == nil && strings.Join(strings.Fields(string(out)), " ") == r.started
}
