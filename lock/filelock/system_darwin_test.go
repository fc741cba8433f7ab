package filelock

import "testing"

// TinyFileSystem returns the directory of a file system of a few pages.
func TinyFileSystem(t testing.TB) string {
	t.Helper()
	t.Skip("not on macOS")
	return ""
}

// Descriptors says at once that somebody else may wait.
func Descriptors(testing.TB, string) int { return 2 }
