package guardtest_test

import (
	"testing"

	"github.com/go-fencing/fencing/guard/guardtest"
)

// The whole test of a guard. The store that open returns is the guard together with
// a table that it guards.
func ExampleRun() {
	testGuard := func(t *testing.T) { // in your package: func TestGuard(t *testing.T)
		guardtest.Run(t, func(*testing.T) guardtest.Store { return guardtest.NewMemoryStore() })
	}
	_ = testGuard
}
