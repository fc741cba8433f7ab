package memlock_test

import (
	"testing"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(*testing.T) lock.Backend { return memlock.New() })
}
