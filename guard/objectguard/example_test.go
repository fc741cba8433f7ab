package objectguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// A counter in a file, guarded by a lock.
func Example() {
	dir, err := os.MkdirTemp("", "objects")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bucket, err := objectguard.NewDir(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := objectguard.New(bucket)
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := lock.New(memlock.New(), lock.WithGuards(store)) // across processes: filelock, redislock, …
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()

	add := func(ctx context.Context) error {
		return store.Update(ctx, "visitors", func(old []byte) ([]byte, error) { return append(old, '|'), nil })
	}
	var late context.Context
	for range 2 {
		err := locker.Do(context.Background(), "visitors", func(ctx context.Context) error {
			late = context.WithoutCancel(ctx) // of a holder that does not notice that its lease is over
			return add(ctx)
		})
		fmt.Println(err)
	}
	newer := guard.Fence{Resource: "visitors", Token: 1000, Nonce: "random", Holder: "B"}
	fmt.Println(store.Raise(context.Background(), newer))
	fmt.Println(errors.Is(add(late), guard.ErrStale))
	data, err := store.Read(guard.NewContext(context.Background(), newer), "visitors")
	fmt.Println(string(data), err)
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// true
	// || <nil>
}

// Readers without a fence take the object from its bucket.
func ExampleData() {
	bucket, err := objectguard.NewDir(os.TempDir())
	if err != nil {
		fmt.Println(err)
		return
	}
	object, _, err := bucket.Get(context.Background(), "reports/2026-03.csv")
	if errors.Is(err, objectguard.ErrNoObject) {
		fmt.Println("not written yet")
		return
	}
	data, err := objectguard.Data(object)
	fmt.Println(len(data), err)
	// Output: not written yet
}
