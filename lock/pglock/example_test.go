package pglock_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/pgguard"
)

// Lock and fence with Postgres alone: with WithRaise the acquisition raises the
// fence, and the locker needs no guards.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("POSTGRES_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil { // or print the SQL for your migration tool
		fmt.Println(err)
		return
	}
	backend, err := pglock.New(pool, pglock.WithRaise())
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
	store, err := pgguard.New(pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = locker.Do(ctx, "inventory:sku-42", func(ctx context.Context) error {
		return store.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE inventory SET stock = stock - 1 WHERE sku = 'sku-42'")
			return err
		})
	})
	fmt.Println(err)
}

// The pool goes through a PgBouncer in transaction mode; waiters are woken over a
// connection that goes straight to the server.
func ExampleWithListen() {
	pool, err := pgxpool.New(context.Background(), "postgres://app@127.0.0.1:6432/shop?default_query_exec_mode=exec")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	direct, err := pgx.ParseConfig("postgres://app@127.0.0.1:5432/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = pglock.New(pool, pglock.WithListen(direct))
	fmt.Println(err)
	// Output: <nil>
}
