package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

// A database connects when the first transaction begins, so that what is wrong
// with the other flags is said before a server is needed. It is a migrations.DBTX.
type database struct {
	address *target.Postgres
	conn    *pgx.Conn
	failure error // to connect
}

func (a *app) openDatabase() (*database, error) {
	address, err := target.ParsePostgres(a.postgresSetting())
	if err != nil {
		return nil, err
	}
	return &database{address: address}, nil
}

func (d *database) Begin(ctx context.Context) (pgx.Tx, error) {
	if d.conn == nil {
		conn, err := d.address.Connect(ctx)
		if err != nil {
			d.failure = err
			return nil, err
		}
		d.conn = conn
	}
	return d.conn.Begin(ctx)
}

// look calls fn in a transaction that only reads and finds nobody's own functions,
// operators and tables in the place of Postgres' own: the role may well be a
// superuser. It waits for no lock for long.
func (d *database) look(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, d, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '10s'"); err != nil {
			return err
		}
		return fn(tx)
	})
}

// explain sorts an error by whether a server had to do with it.
func (d *database) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case d.failure != nil:
		return d.failure // whatever was to be done there
	case d.conn == nil:
		return err
	}
	return refused(err)
}

func (d *database) close(ctx context.Context) {
	if d.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = d.conn.Close(ctx) // all that matters was committed
}
