package redislock_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

func Example() {
	server, err := miniredis.Run() // in a service: your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	backend, err := redislock.New(rdb)
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
	err = locker.Do(context.Background(), "inventory:sku-42", func(ctx context.Context) error {
		fmt.Println("nobody else is here")
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else is here
	// <nil>
}

// During a migration from a library that sets a string with NX: both respect the
// same key.
func ExampleWithKeys() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer func() { _ = rdb.Close() }()
	_, err := redislock.New(rdb, redislock.WithKeys(func(resource string) (lockKey, counterKey string) {
		return "mutex:" + resource, "mutex-fence"
	}))
	fmt.Println(err)
	// Output: <nil>
}
