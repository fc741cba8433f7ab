package redlock_test

import (
	"testing"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 4} {
		c := start(t, n)
		c.establish(t)
		locktest.Run(t, func(t *testing.T) lock.Backend { return c.backend(t) })
	}
}
