package zklock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/zklock"
)

// The lock in ZooKeeper. The session timeout is chosen for the TTL: a third longer.
func Example() {
	backend, err := zklock.New(
		strings.Split(os.Getenv("ZOOKEEPER_SERVERS"), ","), // host:port of each
		zklock.WithPrefix("/shop/fencing"),
		zklock.WithSessionTimeout(20*time.Second),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = backend.Close() }() // after its lockers
	locker, err := lock.New(backend, lock.WithTTL(15*time.Second), lock.WithFair())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()
	err = locker.Do(context.Background(), "nightly-report", func(ctx context.Context) error {
		return report(ctx)
	})
	fmt.Println(err)
}

func report(context.Context) error { return nil }
