package redlock_test

import (
	"testing"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

// Not parallel to the others: it has TTLs of 200ms, and 100ms for four servers that
// share the machine with forty more are not much.
func TestBackend(t *testing.T) {
	for _, n := range []int{1, 3, 4} {
		c := start(t, n)
		c.establish(t)
		locktest.Run(t, func(t *testing.T) lock.Backend { return c.backend(t) })
	}
}
