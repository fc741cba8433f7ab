package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/go-fencing/fencing/examples/internal/servers"
)

// work is a worker process: it serves buyers one after the other.
func work(ctx context.Context, s servers.Servers, name string, unguarded, halt bool, buyers []string) error {
	log.SetFlags(0)
	log.SetOutput(os.Stdout)
	pool, rdb, err := s.Connect(ctx, "example_inventory")
	if err != nil {
		return err
	}
	defer pool.Close()
	defer func() { _ = rdb.Close() }() // every lock has been released
	shop, err := openShop(pool, rdb, name, unguarded)
	if err != nil {
		return err
	}
	if halt {
		shop.check = haltOnce()
	}
	for _, buyer := range buyers {
		err := shop.sell(ctx, buyer)
		if err != nil && !errors.Is(err, errSoldOut) && !errors.Is(err, errBought) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return shop.locker.Close()
}

// halted ends the line that tells the director that the worker can be frozen.
const halted = "and is stopped there"

// haltOnce returns a check that takes, the first time, until the director closes
// the standard input.
func haltOnce() func(buyer string, stock int) {
	done := false
	return func(buyer string, stock int) {
		if done {
			return
		}
		done = true
		log.Printf("has read stock %d for %s %s", stock, buyer, halted)
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
		log.Print("goes on")
	}
}
