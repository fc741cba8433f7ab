// Package localfile has what keeps files of one host between its processes: locks,
// names, and what a crash leaves. It is for lock/filelock and guard/objectguard.
package localfile

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Name returns a file name for a resource. It keeps the resource readable as far as
// every file system can tell names apart, and a hash does the rest: names may be long,
// differ in case, or contain anything.
func Name(resource, suffix string) string {
	readable := make([]byte, 0, 40)
	for i := range min(len(resource), cap(readable)) {
		c := resource[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			c = '_'
		}
		readable = append(readable, c)
	}
	sum := sha256.Sum256([]byte(resource))
	return string(readable) + "." + hex.EncodeToString(sum[:16]) + suffix
}

// Abs returns the full name of a directory, since the process may change its own. No
// name at all, as of a setting that is missing, is not the process's own one.
func Abs(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("it has no name; give the path of one")
	}
	return filepath.Abs(dir)
}

// Linked reports whether an open file is still in its directory under its name.
func Linked(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	current, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(mine, current)
}

// LockBy locks f, for which it waits until end: then the error is ErrLocked.
func LockBy(ctx context.Context, f *os.File, how int, end time.Time) error {
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		err := Lock(f, how)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ErrLocked):
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		case time.Now().After(end):
			return ErrLocked
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// random is what rand.Text draws from.
const random = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

// Random reports whether name is one that rand.Text makes, and so that of a file of ours:
// what else is in a directory is somebody else's.
func Random(name string) bool {
	return len(name) == len(rand.Text()) && strings.Trim(name, random) == ""
}

// SyncDir waits until the names in a directory are on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
