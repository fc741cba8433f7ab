package redlock_test

import (
	"testing"
	"time"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/redlock"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 4} {
		c := start(t, n)
		establish(t, c.backend(t, redlock.WithRestartDelay(10*time.Millisecond)))
		locktest.Run(t, func(t *testing.T) lock.Backend { return c.backend(t) })
	}
}
