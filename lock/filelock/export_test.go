package filelock

import "testing"

// SetClock changes what tells the time for b.
func SetClock(t testing.TB, b *Backend, name string) {
	t.Helper()
	b.clock = name
}
