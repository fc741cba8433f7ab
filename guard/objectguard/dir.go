package objectguard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-fencing/fencing/internal/localfile"
)

const (
	objectSuffix = ".object"
	draftSuffix  = ".draft"

	// draftLife is after how long a draft is one that a crash has left.
	draftLife = time.Hour

	// busyLimit is how long a Put waits for another one of the same object.
	busyLimit = time.Second
)

// A Dir is a [Bucket] in the files of a directory, for the processes of one host. It is
// safe for concurrent use.
//
// An object is a file that is replaced as a whole: by a new one, which is on disk
// before it gets the name, while the old one is locked by flock(2). Its version is a
// hash of its bytes. The directory must be on a disk of the host: network file systems
// are refused.
type Dir struct{ dir string }

var _ Bucket = (*Dir)(nil)

// NewDir returns the bucket of a directory, which must exist and be writable. It works
// on Linux and macOS; elsewhere it returns an error.
func NewDir(dir string) (*Dir, error) {
	d := &Dir{}
	if err := d.open(dir); err != nil {
		return nil, fmt.Errorf("objectguard: directory %q: %w", dir, err)
	}
	return d, nil
}

func (d *Dir) open(dir string) (err error) {
	if d.dir, err = localfile.Abs(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	if err := localfile.CheckFileSystem(d.dir); err != nil {
		return err
	}
	for _, e := range entries {
		id, draft := strings.CutSuffix(e.Name(), draftSuffix)
		if !draft || !localfile.Random(id) {
			continue // an object, or somebody else's
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > draftLife {
			_ = os.Remove(filepath.Join(d.dir, e.Name())) // the next one will
		}
	}
	return nil
}

func (d *Dir) path(key string) string { return filepath.Join(d.dir, localfile.Name(key, objectSuffix)) }

// Get implements [Bucket].
func (d *Dir) Get(ctx context.Context, key string) (object []byte, version string, err error) {
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	f, err := os.OpenFile(d.path(key), os.O_RDONLY|localfile.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", ErrNoObject
	}
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = f.Close() }()
	object, err = io.ReadAll(f)
	return object, versionOf(object), err
}

func versionOf(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}

// Put implements [Bucket]. The object is on disk when it returns. An object that
// another process keeps locked, since it was paused just then, counts as changed.
func (d *Dir) Put(ctx context.Context, key string, object []byte, version string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	draft, err := d.draft(object)
	if err == nil {
		if version == "" {
			err = create(draft, d.path(key))
		} else {
			err = replace(ctx, draft, d.path(key), version)
		}
		if err == nil {
			err = localfile.SyncDir(d.dir)
		}
	}
	_ = os.Remove(draft) // after a rename it is not there
	return err
}

// draft writes an object to disk under a name of its own.
func (d *Dir) draft(object []byte) (path string, err error) {
	path = filepath.Join(d.dir, rand.Text()+draftSuffix)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|localfile.NoFollow, 0o666) // less the umask, which says who shares
	if err != nil {
		return path, err
	}
	_, err = f.Write(object)
	if err == nil {
		err = f.Sync()
	}
	return path, errors.Join(err, f.Close())
}

// create gives a draft the name of an object that is not there. Not by a rename, which
// would replace one.
func create(draft, path string) error {
	err := os.Link(draft, path)
	if errors.Is(err, fs.ErrExist) {
		return ErrChanged
	}
	return err
}

// replace gives a draft the name of an object that is there, if that is of version.
func replace(ctx context.Context, draft, path, version string) error {
	for end := time.Now().Add(busyLimit); ; {
		f, err := os.OpenFile(path, os.O_RDONLY|localfile.NoFollow, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return ErrChanged
		}
		if err != nil {
			return err
		}
		err = replaceLocked(ctx, f, draft, version, end)
		_ = f.Close() // unlocks
		if !errors.Is(err, errReplaced) {
			return err
		}
	}
}

var errReplaced = errors.New("the file was replaced")

func replaceLocked(ctx context.Context, f *os.File, draft, version string, end time.Time) error {
	err := localfile.LockBy(ctx, f, localfile.Exclusive, end)
	switch {
	case errors.Is(err, localfile.ErrLocked):
		return ErrChanged
	case err != nil:
		return err
	}
	// Who replaces a file has locked it. So one that is still in its place now stays
	// there until it is unlocked.
	if !localfile.Linked(f) {
		return errReplaced
	}
	object, err := io.ReadAll(f)
	switch {
	case err != nil:
		return err
	case versionOf(object) != version:
		return ErrChanged
	}
	return os.Rename(draft, f.Name())
}
