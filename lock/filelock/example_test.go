package filelock_test

import (
	"context"
	"fmt"
	"os"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/filelock"
)

func Example() {
	dir, err := os.MkdirTemp("", "locks-*") // in a service: one that all its processes know
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	backend, err := filelock.New(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := lock.New(backend)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()
	err = locker.Do(context.Background(), "nightly-report", func(ctx context.Context) error {
		fmt.Println("no other process of this host is here")
		return nil
	})
	fmt.Println(err)
	// Output:
	// no other process of this host is here
	// <nil>
}
