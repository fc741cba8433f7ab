// Quickstart is the example of the README.
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/pgguard"
)

func main() {
	ctx := context.Background()
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	rdb := redis.NewClient(must(redis.ParseURL(os.Getenv("REDIS_URL"))))
	must(0, migrations.Up(ctx, pool)) // or print the SQL for your migration tool

	store := must(pgguard.New(pool))
	locker := must(lock.New(must(redislock.New(rdb)), lock.WithGuards(store)))

	must(0, locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error {
		return store.InTx(ctx, func(tx pgx.Tx) error { // refused if another holder came since
			_, err := tx.Exec(ctx, "UPDATE inventory SET stock = stock - 1 WHERE sku = 'sku-42'")
			return err
		})
	}))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
