//go:build !linux && !darwin

package filelock

// LimitFileSize is for systems that have file locks.
func LimitFileSize() {}
