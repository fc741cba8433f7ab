package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/examples/accounts/db"
)

var accounts = []string{"alice", "bob", "carol"}

const (
	opening   = 100 // on each account
	transfers = 20
)

// comeBackLate has a holder read a balance, lose its lease, and write back what it
// read although a transfer has changed it since.
func comeBackLate(ctx context.Context, bank, late *bank) error {
	lease, err := late.locker.AcquireAll(ctx, resource("alice"), resource("bob"))
	if err != nil {
		return err
	}
	held := context.WithoutCancel(lease.Context()) // a pause may come after every look at the context
	read, err := late.queries.GetAccount(held, "alice")
	if err != nil {
		return err
	}
	// This one waits until the lease has run out.
	t := db.Transfer{ID: rand.Text(), FromAccount: "alice", ToAccount: "bob", Amount: 10}
	if err := bank.transfer(ctx, t); err != nil {
		return err
	}
	err = late.queries.SetBalance(held, db.SetBalanceParams{ID: read.ID, Balance: read.Balance})
	fmt.Println("late     write:", outcome(err))
	return nil
}

// submitTwice submits every transfer twice at the same time, as a client does that
// has no patience.
func submitTwice(ctx context.Context, bank *bank) error {
	var submissions sync.WaitGroup
	errs := make(chan error, 2*transfers)
	for range transfers {
		people := mathrand.Perm(len(accounts))
		t := db.Transfer{
			ID: rand.Text(), FromAccount: accounts[people[0]], ToAccount: accounts[people[1]], Amount: 1 + mathrand.Int64N(opening),
		}
		for range 2 {
			submissions.Go(func() { errs <- bank.transfer(ctx, t) })
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
	fmt.Printf("settled  %d transfers, each submitted twice at once; for %d of %d submissions there was not enough money\n", transfers, short, 2*transfers)
	return nil
}

func sweepTwice(ctx context.Context, bank *bank) error {
	for range 2 {
		if err := bank.sweep(ctx, "bob", "alice", opening/2); err != nil {
			return err
		}
	}
	fmt.Printf("swept    what bob had above %d to alice\n", opening/2)
	return nil
}

// forgetTheGuard writes a balance without a fence, and under that of another
// account.
func forgetTheGuard(ctx context.Context, bank *bank, pool *pgxpool.Pool) error {
	riches := db.SetBalanceParams{ID: "alice", Balance: 1_000_000}
	fmt.Println("unfenced write:", outcome(db.New(pool).SetBalance(ctx, riches)))
	return bank.locker.Do(ctx, resource("bob"), func(ctx context.Context) error {
		fmt.Println("bob's    lock, write to alice:", outcome(bank.queries.SetBalance(ctx, riches)))
		return nil
	})
}

func outcome(err error) string {
	if err == nil {
		return "went through"
	}
	return "refused: " + err.Error()
}

// audit checks that every balance is what the transfers make of it, that no money
// was made or lost, and that no account is below zero.
func audit(ctx context.Context, pool *pgxpool.Pool) error {
	queries := db.New(pool) // nothing else is running, so there is nothing to be fenced from
	now, err := queries.ListAccounts(ctx)
	if err != nil {
		return err
	}
	settled, err := queries.ListTransfers(ctx)
	if err != nil {
		return err
	}
	expected := make(map[string]int64)
	for _, t := range settled {
		expected[t.FromAccount] -= t.Amount
		expected[t.ToAccount] += t.Amount
	}
	total := int64(0)
	for _, a := range now {
		fmt.Printf("balance  %s %d\n", a.ID, a.Balance)
		total += a.Balance
		switch {
		case a.Balance < 0:
			return fmt.Errorf("BROKEN: %s is below zero", a.ID)
		case a.Balance != opening+expected[a.ID]:
			return fmt.Errorf("BROKEN: %s should have %d after %d transfers", a.ID, opening+expected[a.ID], len(settled))
		}
	}
	if total != opening*int64(len(accounts)) {
		return fmt.Errorf("BROKEN: %d in all, %d at the beginning", total, opening*len(accounts))
	}
	fmt.Printf("OK: %d transfers applied once each, %d in all as at the beginning, no account below zero\n", len(settled), total)
	return nil
}
