package filelock

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-fencing/fencing/internal/localfile"
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
		f, err := os.OpenFile(filepath.Join(dir, p.id+aliveSuffix), os.O_RDWR|os.O_CREATE|os.O_EXCL|localfile.NoFollow, 0o666)
		if err != nil {
			return nil, err
		}
		p.file = f
		err = localfile.Lock(f, localfile.Exclusive)
		if err == nil && localfile.Linked(f) {
			return p, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, localfile.ErrLocked) {
			_ = os.Remove(f.Name())
			return nil, err
		}
		// Another process took it for that of a dead one before it was locked.
	}
}

// alive reports whether a process lives. If that cannot be learned it does, and
// the TTL decides.
func alive(dir, id string) bool {
	if strings.ContainsAny(id, `/\.`) { // no id of ours
		return false
	}
	f, err := os.OpenFile(filepath.Join(dir, id+aliveSuffix), os.O_RDONLY|localfile.NoFollow, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer func() { _ = f.Close() }() // unlocks
	return localfile.Lock(f, localfile.Shared) != nil
}

// buryProcesses removes the files of processes that are dead. An error leaves a
// file for the next one.
func buryProcesses(dir string) {
	names, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+aliveSuffix))
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR|localfile.NoFollow, 0)
		if err != nil {
			continue
		}
		if localfile.Lock(f, localfile.Exclusive) == nil {
			_ = os.Remove(name) // while it is locked: see newProcess
		}
		_ = f.Close()
	}
}

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
