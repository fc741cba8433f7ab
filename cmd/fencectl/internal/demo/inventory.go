package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	sku      = "sku-42"
	resource = "inventory:" + sku
	opening  = 100 // the stock before each act
)

// An inventory is the table that the workers sell from.
type inventory struct{ schema string }

func (i inventory) table() string { return pgx.Identifier{i.schema, "inventory"}.Sanitize() }

func (i inventory) stock(ctx context.Context, db dbtx) (n int, err error) {
	err = db.QueryRow(ctx, "SELECT stock FROM "+i.table()+" WHERE sku = $1", sku).Scan(&n)
	return n, err
}

func (i inventory) setStock(ctx context.Context, db dbtx, n int) error {
	tag, err := db.Exec(ctx, "UPDATE "+i.table()+" SET stock = $1 WHERE sku = $2", n, sku)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("the update of %s changed %d rows", sku, tag.RowsAffected())
	}
	return err
}
