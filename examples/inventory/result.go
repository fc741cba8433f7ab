package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A result is what the tables say after the sale.
type result struct {
	stock  int
	orders int
	units  int // different ones that were sold
	buyers int // different ones who bought
}

func look(ctx context.Context, pool *pgxpool.Pool) (r result, err error) {
	err = pool.QueryRow(ctx, `
		SELECT (SELECT stock FROM example_inventory.inventory WHERE sku = $1),
		       count(*), count(DISTINCT unit), count(DISTINCT buyer)
		  FROM example_inventory.orders WHERE sku = $1`, sku).Scan(&r.stock, &r.orders, &r.units, &r.buyers)
	return r, err
}

func (r result) String() string {
	return fmt.Sprintf("%d of %d units sold, %d left; %d orders for a unit that was sold already, %d from a buyer who had one",
		r.orders, units, r.stock, r.orders-r.units, r.orders-r.buyers)
}

func (r result) verdict() error {
	switch {
	case r.orders > units || r.units < r.orders || r.stock != units-r.orders:
		return errors.New("BROKEN: oversold")
	case r.buyers < r.orders:
		return errors.New("BROKEN: duplicate orders")
	}
	fmt.Println("OK: not oversold, no duplicate order")
	return nil
}
