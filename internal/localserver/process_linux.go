package localserver

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A relative is a process that a server forked. Its start time tells it apart
// from a later process with the same number.
type relative struct {
	pid     int
	started string
}

func children(parent int) ([]relative, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var found []relative
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		ppid, started, err := stat(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended while we looked
		}
		if err != nil {
			return nil, err
		}
		if ppid == parent {
			found = append(found, relative{pid, started})
		}
	}
	return found, nil
}

func (r relative) alive() bool {
	_, started, err := stat(r.pid)
	return err == nil && started == r.started
}

// stat reads /proc/PID/stat; proc(5) numbers its fields from 1: 3 is the state,
// 4 the parent, 22 the start time. A zombie counts as ended.
func stat(pid int) (ppid int, started string, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The second field is the command's name in parentheses and may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 || string(fields[0]) == "Z" {
		return 0, "", fs.ErrNotExist
	}
	ppid, err = strconv.Atoi(string(fields[1]))
	return ppid, string(fields[19]), err
}
