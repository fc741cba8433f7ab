package filelock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localfile"
	"github.com/go-fencing/fencing/lock"
)

// A lock file begins with the counter, padded to a sector: disks write one wholly or
// not at all, which is what Postgres too relies on for its control file. The lease
// follows as a line with a checksum; a torn one is none, and it may get lost
// together with the host.
const (
	magic      = "fencing lock 1\n"
	headerSize = 512
	noLease    = "-\n"
	sizeLimit  = 1 << 20
)

// busyLimit is how long a call waits for other processes to read and write a record,
// each of which takes the time of one fsync. What frees a lock waits longer: who gives up
// leaves it for its TTL.
const (
	busyLimit    = time.Second
	releaseLimit = 5 * time.Second
)

var (
	errBusy    = errors.New("another process has stopped in the middle of using the file")
	errGarbage = errors.New("has something that is no lock; nothing was changed, choose another directory")
)

// A lease is what a file says of its lock.
type lease struct {
	Resource string        `json:"resource"`
	Token    guard.Token   `json:"token"` // a string, as everywhere in JSON
	Nonce    string        `json:"nonce"`
	Holder   string        `json:"holder"`
	Members  []member      `json:"members"`
	Clock    string        `json:"clock"`
	Expires  time.Duration `json:"expires"` // by the clock
}

// A member is who acquired, under its nonce, or joined.
type member struct {
	ID      string `json:"id"`
	Process string `json:"process"`
}

// A file is the open and locked file of a resource.
type file struct {
	*os.File
	fresh bool // it has nothing in it
	token guard.Token
	lease *lease
	line  []byte // of the lease, as it was read
}

// do calls work with the file of resource, alone on this host, for which it waits until
// the limit. If there is none and it is not to be created, nobody has the lock.
func (b *Backend) do(ctx context.Context, resource string, create bool, limit time.Duration, work func(f *file) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	path := filepath.Join(b.dir, localfile.Name(resource, ".lock"))
	for {
		f, err := openLocked(ctx, path, create, limit)
		if errors.Is(err, fs.ErrNotExist) && !create {
			return lock.ErrLost
		}
		if err != nil {
			return err
		}
		err = b.use(f, path, resource, work)
		if closeErr := f.Close(); err == nil { // unlocks
			err = closeErr
		}
		if !errors.Is(err, errReplaced) {
			return err
		}
	}
}

var errReplaced = errors.New("the file was replaced")

func (b *Backend) use(f *file, path, resource string, work func(f *file) error) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	// Somebody has deleted it, in spite of the warning: whoever comes next uses
	// the new one.
	if current, err := os.Stat(path); err != nil || !os.SameFile(mine, current) {
		return errReplaced
	}
	if err := f.read(mine, resource); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return work(f)
}

func openLocked(ctx context.Context, path string, create bool, limit time.Duration) (*file, error) {
	flags := os.O_RDWR | localfile.NoFollow
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o666) // less the umask, which says who shares
	if err != nil {
		return nil, err
	}
	err = localfile.LockBy(ctx, f, localfile.Exclusive, time.Now().Add(limit))
	if err == nil {
		return &file{File: f}, nil
	}
	_ = f.Close()
	if errors.Is(err, localfile.ErrLocked) {
		err = fmt.Errorf("%s: %w", path, errBusy)
	}
	return nil, err
}

// read takes the file for a lock only if it is one, or nothing yet: empty, or
// zeroes that a crash of the host has left.
func (f *file) read(info os.FileInfo, resource string) error {
	if !info.Mode().IsRegular() || info.Size() > sizeLimit {
		return errGarbage
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, sizeLimit))
	if err != nil {
		return err
	}
	if len(bytes.Trim(text, "\x00")) == 0 {
		f.fresh = true
		return nil
	}
	if len(text) < headerSize {
		return errGarbage
	}
	var token int64
	if _, err := fmt.Sscanf(string(text[len(magic):headerSize]), "%d\n", &token); err != nil || !bytes.Equal(text[:headerSize], header(guard.Token(token))) {
		return errGarbage
	}
	f.token = guard.Token(token)
	line, _, _ := bytes.Cut(text[headerSize:], []byte("\n"))
	f.line = line
	sum, text, _ := bytes.Cut(line, []byte(" "))
	if string(sum) != checksum(text) {
		return nil
	}
	l := new(lease)
	if err := json.Unmarshal(text, l); err != nil || l.Resource != resource {
		return errGarbage
	}
	f.lease = l
	return nil
}

func header(token guard.Token) []byte {
	text := fmt.Sprintf("%s%d\n", magic, token)
	text += checksum([]byte(text)) + "\n"
	return append([]byte(text), bytes.Repeat([]byte("\n"), headerSize-len(text))...)
}

func (l *lease) line() ([]byte, error) {
	if l == nil {
		return []byte(noLease), nil
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s %s\n", checksum(text), text), nil
}

func checksum(text []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) }

// writeLease changes the lease and leaves the token as it is. Where it fails, the lease
// is what it was: a disk that is full has room for that.
func (f *file) writeLease(l *lease) error {
	line, err := l.line()
	if err != nil {
		return err
	}
	if headerSize+len(line) > sizeLimit {
		return fmt.Errorf("the record of %d members would be longer than %d bytes; nothing was changed, let some of them leave first", len(l.Members), sizeLimit)
	}
	if _, err = f.WriteAt(line, headerSize); err != nil {
		_, undo := f.WriteAt(append(f.line, '\n'), headerSize)
		err = errors.Join(err, undo)
	}
	return err
}

// writeAll also changes the token, which nobody may see before it is on disk.
func (f *file) writeAll(l *lease) error {
	line, err := l.line()
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(append(header(l.Token), line...), 0); err == nil {
		err = f.Sync()
	}
	if !f.fresh {
		return err
	}
	if err == nil {
		err = localfile.SyncDir(filepath.Dir(f.Name()))
	}
	if err != nil {
		_ = f.Truncate(0) // a full disk must not leave what looks like garbage
	}
	return err
}
