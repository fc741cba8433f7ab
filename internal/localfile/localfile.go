// Package localfile has what keeps files of one host between its processes: locks,
// names, and what a crash leaves. It is for lock/filelock and guard/objectguard.
package localfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
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

// SyncDir waits until the names in a directory are on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
