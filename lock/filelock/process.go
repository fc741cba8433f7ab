package filelock

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

const aliveSuffix = ".alive"

// A process is the file that this process keeps locked as long as it lives. The
// kernel gives it up for a process that does not, however it ended; a process id
// would be given to another one, and mean nothing in another container.
type process struct {
	id   string
	file *os.File
}

func newProcess(dir string) (*process, error) {
	for {
		p := &process{id: rand.Text()}
		f, err := os.OpenFile(filepath.Join(dir, p.id+aliveSuffix), os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, 0o666)
		if err != nil {
			return nil, err
		}
		p.file = f
		err = flock(f, exclusive)
		if err == nil && linked(f) {
			return p, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, errLocked) {
			_ = os.Remove(f.Name())
			return nil, err
		}
		// Another process took it for that of a dead one before it was locked.
	}
}

// linked reports whether the file is still in its directory.
func linked(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	current, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(mine, current)
}

// alive reports whether a process lives. If that cannot be learned it does, and
// the TTL decides.
func alive(dir, id string) bool {
	if strings.ContainsAny(id, `/\.`) { // no id of ours
		return false
	}
	f, err := os.OpenFile(filepath.Join(dir, id+aliveSuffix), os.O_RDONLY|noFollow, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer func() { _ = f.Close() }() // unlocks
	return flock(f, shared) != nil
}

// buryProcesses removes the files of processes that are dead. An error leaves a
// file for the next one.
func buryProcesses(dir string) {
	names, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+aliveSuffix))
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR|noFollow, 0)
		if err != nil {
			continue
		}
		if flock(f, exclusive) == nil {
			_ = os.Remove(name) // while it is locked: see newProcess
		}
		_ = f.Close()
	}
}

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
