package redislock_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-fencing/fencing/internal/servertest"
)

func TestMain(m *testing.M) {
	if fence := os.Getenv(joinEnv); fence != "" {
		if err := joinAndStay(fence); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if prefix := os.Getenv(waitEnv); prefix != "" {
		fmt.Println(waitUntilKilled(prefix))
		os.Exit(1)
	}
	servertest.Main(m, nothingIsLeft)
}

// nothingIsLeft looks for goroutines that outlive the tests. A feed lingers for a second
// or two after its last watcher, and a locker's clean-up ends with the client's timeouts.
func nothingIsLeft() error {
	server := goleak.IgnoreAnyFunction("github.com/go-fencing/fencing/internal/localserver.(*process).start.func1") // the one that is shared
	var err error
	for begun := time.Now(); time.Since(begun) < 30*time.Second; { // each looks for half a second
		if err = goleak.Find(server); err == nil {
			return nil
		}
	}
	return fmt.Errorf("left of the tests: %w", err)
}
