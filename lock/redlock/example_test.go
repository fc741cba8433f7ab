package redlock_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redlock"
)

func Example() {
	var nodes []redis.UniversalClient // in a service: masters on machines of their own
	for range 3 {
		server, err := miniredis.Run()
		if err != nil {
			fmt.Println(err)
			return
		}
		defer server.Close()
		// With ContextTimeoutEnabled a node that hangs holds up a connection for the
		// node timeout, and not for the read timeout of its client.
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		nodes = append(nodes, rdb)
	}

	// Only for nodes that forget nothing; the servers of this example live as long as it.
	backend, err := redlock.New(nodes, redlock.WithRestartDelay(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	store := guard.NewMemory() // in a service: pgguard
	locker, err := lock.New(backend, lock.WithGuards(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()
	for range 2 {
		err = locker.Do(context.Background(), "inventory:sku-42", func(ctx context.Context) error {
			fence, _ := guard.FromContext(ctx, "inventory:sku-42")
			fmt.Println("token", fence.Token)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// token 1
	// token 2
}
