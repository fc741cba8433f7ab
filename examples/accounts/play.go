package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/examples/accounts/db"
)

var accounts = []string{"alice", "bob", "carol"}

const (
	opening   = 100 // on each account
	transfers = 20
)

// A play is what happens to the accounts, in scenes.
type play struct {
	pool *pgxpool.Pool
	bank *bank
	late *bank // whose leases are short and not renewed
}

func (p play) openAccounts(ctx context.Context) error {
	for _, account := range accounts {
		if err := p.bank.open(ctx, account, opening); err != nil {
			return err
		}
	}
	fmt.Printf("opened: %s with %d each\n", strings.Join(accounts, ", "), opening)
	return nil
}

// comeBackLate has a holder read a balance, lose its lease, and write back what it
// read although a transfer has changed it since.
func (p play) comeBackLate(ctx context.Context) error {
	lease, err := p.late.locker.Acquire(ctx, resource("alice"))
	if err != nil {
		return err
	}
	held := context.WithoutCancel(lease.Context()) // a pause may come after every look at the context
	read, err := p.late.queries.GetAccount(held, "alice")
	if err != nil {
		return err
	}
	// This one waits until the lease has run out.
	t := db.Transfer{ID: rand.Text(), FromAccount: "alice", ToAccount: "bob", Amount: 10}
	if err := p.bank.transfer(ctx, t); err != nil {
		return err
	}
	err = p.late.queries.SetBalance(held, db.SetBalanceParams(read))
	fmt.Println("write of a balance that was read too long ago:", outcome(err))
	return nil
}

// submitTwice submits every transfer twice at the same time, as a client does that
// has no patience.
func (p play) submitTwice(ctx context.Context) error {
	var submissions sync.WaitGroup
	errs := make(chan error, 2*transfers)
	for range transfers {
		who := mathrand.Perm(len(accounts))
		t := db.Transfer{
			ID: rand.Text(), FromAccount: accounts[who[0]], ToAccount: accounts[who[1]], Amount: 1 + mathrand.Int64N(opening),
		}
		for range 2 {
			submissions.Go(func() { errs <- p.bank.transfer(ctx, t) })
		}
	}
	submissions.Wait()
	close(errs)
	short := 0
	for err := range errs {
		switch {
		case errors.Is(err, errShort):
			short++
		case err != nil:
			return err
		}
	}
	fmt.Printf("submitted: %d transfers, each of them twice at once; %d submissions found too little money\n", transfers, short)
	return nil
}

func (p play) sweepTwice(ctx context.Context) error {
	for range 2 {
		if err := p.bank.sweep(ctx, "bob", "alice", opening/2); err != nil {
			return err
		}
	}
	fmt.Printf("swept: what bob had above %d to alice\n", opening/2)
	return nil
}

// forgetTheGuard writes a balance without a fence, and under that of another
// account.
func (p play) forgetTheGuard(ctx context.Context) error {
	riches := db.SetBalanceParams{ID: "alice", Balance: 1_000_000}
	fmt.Println("write around the guard:", outcome(db.New(p.pool).SetBalance(ctx, riches)))
	return p.bank.locker.Do(ctx, resource("bob"), func(ctx context.Context) error {
		fmt.Println("write under another account's lock:", outcome(p.bank.queries.SetBalance(ctx, riches)))
		return nil
	})
}

func outcome(err error) string {
	if err == nil {
		return "WENT THROUGH"
	}
	return "refused: " + err.Error()
}

// audit checks that every balance is what the transfers make of it, so that no
// money was made or lost, and that no account is below zero.
func (p play) audit(ctx context.Context) error {
	queries := db.New(p.pool) // nothing else is running: there is nothing to be fenced from
	balances, err := queries.ListAccounts(ctx)
	if err != nil {
		return err
	}
	applied, err := queries.ListTransfers(ctx)
	if err != nil {
		return err
	}
	expected, total := make(map[string]int64), int64(0)
	for _, t := range applied {
		expected[t.FromAccount] -= t.Amount
		expected[t.ToAccount] += t.Amount
	}
	for _, a := range balances {
		expected[a.ID] += opening
		total += a.Balance
		fmt.Printf("balance of %s: %d\n", a.ID, a.Balance)
	}
	for _, a := range balances {
		switch {
		case a.Balance < 0:
			return fmt.Errorf("BROKEN: %s is below zero", a.ID)
		case a.Balance != expected[a.ID]:
			return fmt.Errorf("BROKEN: %s should have %d after %d transfers", a.ID, expected[a.ID], len(applied))
		}
	}
	fmt.Printf("OK: %d transfers applied once each, %d in all as at the beginning, no account below zero\n", len(applied), total)
	return nil
}
