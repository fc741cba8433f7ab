package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/pgguard"
)

var (
	errSoldOut = errors.New("sold out")
	errBought  = errors.New("one per buyer")
)

// A shop sells units of one article, one to each buyer.
type shop struct {
	locker *lock.Locker
	db     database
	check  func(buyer string, stock int) // whatever takes time between reading and writing
}

// A database is what a *pgguard.Guard and a *pgxpool.Pool have in common.
type database interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// openShop returns a shop with the fence or, to show what goes wrong then, with
// the lock alone. There is no other difference between the two.
func openShop(pool *pgxpool.Pool, rdb *redis.Client, holder string, unguarded bool) (*shop, error) {
	backend, err := redislock.New(rdb, redislock.WithPrefix("example-inventory"))
	if err != nil {
		return nil, err
	}
	// Renewal keeps the lock of a worker that is alive; one that hangs must not hold
	// up the sale for ever.
	opts := []lock.Option{lock.WithTTL(ttl), lock.WithMaxHold(6 * ttl), lock.WithHolder(holder)}
	var db database = pool
	if !unguarded {
		store, err := pgguard.New(pool)
		if err != nil {
			return nil, err
		}
		db, opts = store, append(opts, lock.WithGuards(store))
	}
	locker, err := lock.New(backend, opts...)
	if err != nil {
		return nil, err
	}
	return &shop{locker: locker, db: db, check: func(string, int) {}}, nil
}

// sell sells a unit to the buyer. It returns errSoldOut or errBought if there is
// none for them.
func (s *shop) sell(ctx context.Context, buyer string) error {
	for {
		err := s.locker.Do(ctx, "inventory:"+sku, func(ctx context.Context) error { return s.order(ctx, buyer) })
		switch stale, ok := errors.AsType[*guard.StaleError](err); {
		case ok: // another worker has sold since; look again
			log.Print("refused: ", stale)
		case errors.Is(err, lock.ErrLost), errors.Is(err, guard.ErrCommitUnknown):
			// The order may be there. The next round finds it if it is.
		default:
			return err
		}
	}
}

// order reads, decides and writes, under the lock.
func (s *shop) order(ctx context.Context, buyer string) error {
	var stock int
	var bought bool
	err := s.db.QueryRow(ctx, `
		SELECT stock, EXISTS (SELECT FROM example_inventory.orders WHERE buyer = $2)
		  FROM example_inventory.inventory WHERE sku = $1`, sku, buyer).Scan(&stock, &bought)
	switch {
	case err != nil:
		return err
	case bought:
		return errBought
	case stock == 0:
		return errSoldOut
	}

	s.check(buyer, stock)

	// The lease may have run out by now, and its context with it. The store knows
	// better: it takes the order unless another worker has come since.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE example_inventory.inventory SET stock = $1 WHERE sku = $2", stock-1, sku); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO example_inventory.orders (id, sku, unit, buyer) VALUES ($1, $2, $3, $4)",
			rand.Text(), sku, stock, buyer)
		return err
	})
}
