// Inventory is a flash sale: several worker processes sell one article to more
// buyers than there are units, and two of them are stopped in the middle of a sale
// for longer than their lock lives.
//
//	go run ./examples/inventory              # nothing is oversold
//	go run ./examples/inventory -unguarded   # the same under the lock alone: units are sold twice
//
// What a service would do is in sale.go; the rest stages it. The sale takes place
// in the schema example_inventory, which is made anew each time.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/examples/internal/servers"
	"github.com/go-fencing/fencing/migrations"
)

const (
	sku     = "sku-42"
	units   = 20
	buyers  = 30 // each of them clicks twice
	workers = 4
	frozen  = 2 // workers that are stopped
	ttl     = 500 * time.Millisecond
)

//go:embed schema.sql
var schema string

func main() {
	unguarded := flag.Bool("unguarded", false, "sell under the lock alone")
	worker := flag.String("worker", "", "be the worker of this `name`; the program starts its workers itself")
	halt := flag.Bool("halt", false, "as a worker, halt in the middle of the first sale")
	s := servers.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	var err error
	if *worker != "" {
		err = work(ctx, s, *worker, *unguarded, *halt, flag.Args())
	} else {
		err = run(ctx, s, *unguarded)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

// run is the whole sale. A sale that went wrong is an error.
func run(ctx context.Context, s servers.Servers, unguarded bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	stop, err := s.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, rdb, err := s.Connect(ctx, "example_inventory")
	if err != nil {
		return err
	}
	defer pool.Close()
	defer func() { _ = rdb.Close() }() // the workers have connections of their own

	if err := stock(ctx, pool); err != nil {
		return err
	}
	fmt.Printf("%d units, %d buyers who click twice, %d workers, locks of %v\n", units, buyers, workers, ttl)
	if err := direct(ctx, pool, s, unguarded); err != nil {
		return err
	}
	r, err := look(ctx, pool)
	if err != nil {
		return err
	}
	fmt.Println(r)
	return r.verdict()
}

// stock makes the tables and puts the units on sale.
func stock(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "INSERT INTO example_inventory.inventory (sku, stock) VALUES ($1, $2)", sku, units)
	return err
}
