// Accounts settles transfers between accounts through repositories that sqlc
// generated (package db) and that know nothing of fencing: they get a
// *pgguard.Guard where they had the pool.
//
//	go run ./examples/accounts
//
// What a service would do is in bank.go; the rest stages it: transfers that are
// submitted twice at once, a holder that comes back too late, and a write that
// somebody forgot to guard. The accounts are in the schema example_accounts, which
// is made anew each time.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/examples/internal/servers"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/migrations"
)

//go:embed schema.sql
var schema string

func main() {
	s := servers.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "accounts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s servers.Servers) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	stop, err := s.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, rdb, err := s.Connect(ctx, "example_accounts")
	if err != nil {
		return err
	}
	defer pool.Close()
	defer func() { _ = rdb.Close() }() // by then every lock has been released

	if err := install(ctx, pool); err != nil {
		return err
	}
	bank, err := openBank(pool, rdb, lock.WithHolder("bank"), lock.WithRetryWait(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bank.locker.Close()) }()
	late, err := openBank(pool, rdb, lock.WithHolder("late"), lock.WithTTL(500*time.Millisecond), lock.WithoutRenewal())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, late.locker.Close()) }()
	p := play{pool: pool, bank: bank, late: late}
	for _, scene := range []func(context.Context) error{p.openAccounts, p.comeBackLate, p.submitTwice, p.sweepTwice, p.forgetTheGuard, p.audit} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// install makes the tables, and has the database refuse a write to an account
// from outside of a transaction that has entered the fence of that account.
func install(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	protect, _, err := migrations.Protect("example_accounts.accounts", migrations.ProtectOptions{
		Trigger: true, Resource: "'account:' || id", NoColumn: true,
	})
	if err != nil {
		return err
	}
	for _, sql := range []string{"DROP SCHEMA IF EXISTS example_accounts CASCADE", "CREATE SCHEMA example_accounts", schema, protect} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
