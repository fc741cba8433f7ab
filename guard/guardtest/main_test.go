package guardtest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// The checks leave no goroutine behind, not even on broken stores.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
