package localfile

import (
	"slices"

	"golang.org/x/sys/unix"
)

func networkFileSystem(s *unix.Statfs_t) string {
	name := unix.ByteSliceToString(s.Fstypename[:])
	if slices.Contains([]string{"nfs", "smbfs", "afpfs", "webdav", "cifs"}, name) {
		return name
	}
	return ""
}
