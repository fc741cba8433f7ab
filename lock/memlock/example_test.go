package memlock_test

import (
	"context"
	"fmt"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// Every locker on one back end contends for the same locks: the goroutines of a
// program, or the processes that a test only pretends to have.
func ExampleNew() {
	backend := memlock.New()
	web1, _ := lock.New(backend, lock.WithHolder("web-1"))
	web2, _ := lock.New(backend, lock.WithHolder("web-2"))

	ctx := context.Background()
	lease, err := web1.Acquire(ctx, "inventory:sku-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	h, _ := backend.Inspect(ctx, "inventory:sku-42")
	fmt.Println("held by", h.Holder, "under token", h.Token)
	_ = lease.Release(ctx)

	lease, err = web2.Acquire(ctx, "inventory:sku-42")
	fmt.Println("then by", lease.Fence().Holder, "under token", lease.Fence().Token, err)
	_ = lease.Release(ctx)
	// Output:
	// held by web-1 under token 1
	// then by web-2 under token 2 <nil>
}
