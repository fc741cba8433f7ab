package redisguard_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/redisguard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// Stock that is kept in Redis itself, sold under a lock.
func Example() {
	sell := func(ctx context.Context, rdb redis.UniversalClient) error {
		store, err := redisguard.New(rdb)
		if err != nil {
			return err
		}
		backend, err := redislock.New(rdb)
		if err != nil {
			return err
		}
		locker, err := lock.New(backend, lock.WithGuards(store))
		if err != nil {
			return err
		}
		defer func() { _ = locker.Close() }()
		stock := store.Key("inventory:sku-42", "stock") // {inventory:sku-42}:stock
		return locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error {
			n, err := rdb.Get(ctx, stock).Int()
			if err != nil {
				return err
			}
			return store.Set(ctx, stock, n-1, 0) // refused if another holder came since
		})
	}
	_ = sell
}

// A script of one's own, which runs only if the fence is still the current one.
func ExampleGuard_Run() {
	take := redisguard.NewScript(`
		local left = tonumber(redis.call('GET', KEYS[1]) or '0')
		if left < tonumber(ARGV[1]) then return redis.error_reply('SOLDOUT ' .. left .. ' left') end
		return redis.call('DECRBY', KEYS[1], ARGV[1])`)
	sell := func(ctx context.Context, store *redisguard.Guard, pieces int) error {
		stock := store.Key("inventory:sku-42", "stock")
		left, err := store.Run(ctx, take, []string{stock}, pieces).Int()
		switch {
		case redis.HasErrorPrefix(err, "SOLDOUT"):
			return nil
		case errors.Is(err, guard.ErrStale):
			return fmt.Errorf("another has the lock: %w", err)
		case err == nil:
			fmt.Println(left, "left")
		}
		return err
	}
	_ = sell
}

// Without a server there is the name of a key to be had.
func ExampleGuard_Key() {
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	store, err := redisguard.New(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.Key("inventory:sku-42", "stock"))
	fmt.Println(store.Key("order:{7}", "total"))
	// Output:
	// {inventory:sku-42}:stock
	// {7}:total
}
