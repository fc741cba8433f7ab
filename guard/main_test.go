package guard_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A guard has no goroutines of its own, and a refused or blocked call leaves none.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
