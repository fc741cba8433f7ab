package filelock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-fencing/fencing/internal/localfile"
)

const aliveSuffix = ".alive"

// A process is the file that this process keeps locked as long as it lives. The
// kernel gives it up for a process that does not, however it ended; a process id
// would be given to another one, and mean nothing in another container.
type process struct {
	dir string
	id  string

	mu   sync.Mutex
	file *os.File // nil once it is closed
}

// living are the processes until they are closed. The garbage collector closes a file
// that nobody can reach, and a lock outlives the back end that its program has dropped.
var living sync.Map

func newProcess(dir string) (*process, error) {
	p := &process{dir: dir, id: rand.Text()}
	var err error
	if p.file, err = p.create(); err == nil {
		living.Store(p, nil)
	}
	return p, err
}

// create makes the file, or finds it. Others look whether it is locked, for which they lock
// it, or take it for that of a dead process before it was: then it is made again.
func (p *process) create() (*os.File, error) {
	for end := time.Now().Add(busyLimit); ; {
		f, err := os.OpenFile(filepath.Join(p.dir, p.id+aliveSuffix), os.O_RDWR|os.O_CREATE|localfile.NoFollow, 0o666)
		if err != nil {
			return nil, err
		}
		err = localfile.LockBy(context.Background(), f, localfile.Exclusive, end)
		if err == nil && localfile.Linked(f) {
			return f, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, localfile.ErrLocked) {
			_ = os.Remove(f.Name())
		}
		if err != nil {
			return nil, err
		}
	}
}

// stay makes the file anew if somebody has deleted it, as those do who clean up after
// others: without it each lock of this process is free to all.
func (p *process) stay() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return fmt.Errorf("the back end is closed: %w", fs.ErrClosed)
	}
	if localfile.Linked(p.file) {
		return nil
	}
	f, err := p.create()
	if err != nil {
		return fmt.Errorf("the file that says that this process is alive was deleted, and cannot be made anew: %w", err)
	}
	_ = p.file.Close()
	p.file = f
	return nil
}

func (p *process) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return nil
	}
	living.Delete(p)
	err := os.Remove(p.file.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, p.file.Close())
	p.file = nil
	return err
}

// alive reports whether a process lives. If that cannot be learned it does, and
// the TTL decides.
func alive(dir, id string) bool {
	if !localfile.Random(id) {
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
		if !localfile.Random(strings.TrimSuffix(filepath.Base(name), aliveSuffix)) {
			continue // somebody else's
		}
		f, err := os.OpenFile(name, os.O_RDWR|localfile.NoFollow, 0)
		if err != nil {
			continue
		}
		bury(f)
		_ = f.Close()
	}
}

// bury removes the file of a process if that is dead. One that was deleted meanwhile may
// have been made anew, and not for a dead one.
func bury(f *os.File) {
	if localfile.Lock(f, localfile.Exclusive) == nil && localfile.Linked(f) {
		_ = os.Remove(f.Name()) // while it is locked: see create
	}
}

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
