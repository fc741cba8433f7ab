package locktest_test

import (
	"testing"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/memlock"
)

// The whole test of a back end. If its locks are in a server, open may connect to
// the same one each time.
func ExampleRun() {
	testBackend := func(t *testing.T) { // in your package: func TestBackend(t *testing.T)
		locktest.Run(t, func(*testing.T) lock.Backend { return memlock.New() })
	}
	_ = testBackend
}
