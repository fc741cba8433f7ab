package demo

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	sku      = "sku-42"
	resource = "inventory:" + sku
	opening  = 100 // the stock before each act
)

// An inventory is what the workers sell from.
type inventory interface {
	stock(ctx context.Context) (int, error)
	setStock(ctx context.Context, n int) error
}

// A pgInventory is a table of Postgres.
type pgInventory struct {
	schema string
	db     dbtx
}

// A dbtx is what the inventory's code needs: a pool has it, and so has a guard.
type dbtx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (i pgInventory) table() string { return pgx.Identifier{i.schema, "inventory"}.Sanitize() }

func (i pgInventory) stock(ctx context.Context) (n int, err error) {
	err = i.db.QueryRow(ctx, "SELECT stock FROM "+i.table()+" WHERE sku = $1", sku).Scan(&n)
	return n, err
}

func (i pgInventory) setStock(ctx context.Context, n int) error {
	tag, err := i.db.Exec(ctx, "UPDATE "+i.table()+" SET stock = $1 WHERE sku = $2", n, sku)
	return oneRow(tag.RowsAffected(), err)
}

// A sqliteInventory is a table of SQLite. The database is the plain one or the
// guarded one: the code that uses it is the same.
type sqliteInventory struct{ db *sql.DB }

func (i sqliteInventory) stock(ctx context.Context) (n int, err error) {
	err = i.db.QueryRowContext(ctx, "SELECT stock FROM inventory WHERE sku = ?", sku).Scan(&n)
	return n, err
}

func (i sqliteInventory) setStock(ctx context.Context, n int) error {
	result, err := i.db.ExecContext(ctx, "UPDATE inventory SET stock = ? WHERE sku = ?", n, sku)
	if err != nil {
		return err
	}
	return oneRow(result.RowsAffected())
}

func oneRow(n int64, err error) error {
	if err == nil && n != 1 {
		err = fmt.Errorf("the update of %s changed %d rows", sku, n)
	}
	return err
}
