package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/examples/accounts/db"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/pgguard"
)

var errShort = errors.New("not enough money")

// A bank moves money between accounts. Its queries are what sqlc generated: they
// have the guard for a database, and know nothing of it.
type bank struct {
	locker  *lock.Locker
	store   *pgguard.Guard
	queries *db.Queries
}

func openBank(pool *pgxpool.Pool, rdb *redis.Client, opts ...lock.Option) (*bank, error) {
	store, err := pgguard.New(pool)
	if err != nil {
		return nil, err
	}
	backend, err := redislock.New(rdb, redislock.WithPrefix("example-accounts"))
	if err != nil {
		return nil, err
	}
	locker, err := lock.New(backend, append(opts, lock.WithGuards(store))...)
	if err != nil {
		return nil, err
	}
	return &bank{locker: locker, store: store, queries: db.New(store)}, nil
}

// resource is the name under which an account is locked and fenced, and which
// the trigger on the table demands.
func resource(account string) string { return "account:" + account }

// open opens an account.
func (b *bank) open(ctx context.Context, account string, balance int64) error {
	return b.locker.Do(ctx, resource(account), func(ctx context.Context) error {
		return b.queries.CreateAccount(ctx, db.CreateAccountParams{ID: account, Balance: balance})
	})
}

// transfer moves money, and records it. However often one ID is submitted, it is
// applied once. Nothing is done if it returns errShort.
func (b *bank) transfer(ctx context.Context, t db.Transfer) error {
	return b.holding(ctx, t.FromAccount, t.ToAccount, func(ctx context.Context) error {
		return b.store.Once(ctx, "transfer:"+t.ID, func(tx pgx.Tx) error {
			return move(ctx, b.queries.WithTx(tx), t)
		})
	})
}

// sweep moves what an account has above a limit. It needs no ID from the caller,
// because a second one finds nothing to move.
func (b *bank) sweep(ctx context.Context, from, to string, limit int64) error {
	return b.holding(ctx, from, to, func(ctx context.Context) error {
		return b.store.InTx(ctx, func(tx pgx.Tx) error {
			q := b.queries.WithTx(tx)
			a, err := q.GetAccount(ctx, from)
			if err != nil || a.Balance <= limit {
				return err
			}
			return move(ctx, q, db.Transfer{ID: "sweep-" + rand.Text(), FromAccount: from, ToAccount: to, Amount: a.Balance - limit})
		})
	})
}

// holding runs fn under the locks and fences of two accounts.
func (b *bank) holding(ctx context.Context, one, other string, fn func(ctx context.Context) error) (err error) {
	lease, err := b.locker.AcquireAll(ctx, resource(one), resource(other))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release(ctx)) }()
	return fn(lease.Context())
}

// move reads, decides and writes. Whoever holds both fences is alone with both
// accounts, so what was read is still true when it is written.
func move(ctx context.Context, q *db.Queries, t db.Transfer) error {
	if t.Amount <= 0 || t.FromAccount == t.ToAccount {
		return fmt.Errorf("transfer %s of %d from %s to %s makes no sense", t.ID, t.Amount, t.FromAccount, t.ToAccount)
	}
	from, err := q.GetAccount(ctx, t.FromAccount)
	if err != nil {
		return err
	}
	to, err := q.GetAccount(ctx, t.ToAccount)
	if err != nil {
		return err
	}
	if from.Balance < t.Amount {
		return errShort
	}
	if err := q.SetBalance(ctx, db.SetBalanceParams{ID: from.ID, Balance: from.Balance - t.Amount}); err != nil {
		return err
	}
	if err := q.SetBalance(ctx, db.SetBalanceParams{ID: to.ID, Balance: to.Balance + t.Amount}); err != nil {
		return err
	}
	return q.CreateTransfer(ctx, db.CreateTransferParams(t))
}
