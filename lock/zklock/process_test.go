package zklock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// childEnv makes the test binary a process that acquires the lock childEnv names, says
// under which fence, holds it, and says how it was lost.
const (
	childEnv   = "ZKLOCK_TEST_CHILD_SERVERS"
	childLock  = "ZKLOCK_TEST_CHILD_LOCK"
	childTTL   = 4500 * time.Millisecond // which a busy machine does not outlast
	childGrace = 6 * time.Second         // the session
)

func TestMain(m *testing.M) {
	if servers := os.Getenv(childEnv); servers != "" {
		if err := hold(strings.Split(servers, ","), os.Getenv(childLock)); err != nil {
			fmt.Println(err)
		}
		return
	}
	servertest.Main(m)
}

func hold(servers []string, name string) error {
	ctx := context.Background()
	b, err := zklock.New(servers, zklock.WithSessionTimeout(childGrace))
	if err != nil {
		return err
	}
	l, err := lock.New(b, lock.WithTTL(childTTL))
	if err != nil {
		return err
	}
	var s *lock.Lease
	for end := time.Now().Add(within); s == nil; { // a busy machine may need longer than the TTL to connect
		if s, err = l.Acquire(ctx, name); err != nil && time.Now().After(end) {
			return err
		}
	}
	text, err := s.Fence().MarshalText()
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	<-s.Lost()
	return s.Release(ctx)
}
