package filelock

import "testing"

// Bury is what New does with each file of a process.
var Bury = bury

// SinceBoot is the time by which locks expire.
var SinceBoot = sinceBoot

// SetClock changes what tells the time for b.
func SetClock(t testing.TB, b *Backend, name string) {
	t.Helper()
	b.clock = name
}
