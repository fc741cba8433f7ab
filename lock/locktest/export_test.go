package locktest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-fencing/fencing/lock"
)

// Failing returns the checks that a back end fails, with what they say.
func Failing(t testing.TB, open func() lock.Backend) map[string]string {
	failing := make(map[string]string)
	for _, c := range append(checks(), optional(open())...) {
		r := &recorder{TB: t}
		ended := make(chan struct{})
		go func() { // which FailNow ends
			defer close(ended)
			c.run(r, open())
		}()
		<-ended
		if r.failed {
			failing[c.name] = r.said.String()
		}
	}
	return failing
}

// A recorder is a test that may fail without the test around it.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   strings.Builder
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	fmt.Fprintf(&r.said, format, args...)
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	runtime.Goexit()
}
