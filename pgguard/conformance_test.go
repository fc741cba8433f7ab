package pgguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/guard/guardtest"
	"github.com/go-fencing/fencing/pgguard"
)

// store is a guard with a table of keys and values.
type store struct {
	*pgguard.Guard
	options pgx.TxOptions
}

func (s store) Update(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
	for {
		err := s.InTxOptions(ctx, s.options, func(tx pgx.Tx) error { return fn(ctx, table{tx}) })
		if !pgguard.Retryable(err) {
			return err
		}
	}
}

type table struct{ tx pgx.Tx }

func (t table) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	err = t.tx.QueryRow(ctx, "select value from data where key = $1", key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}

func (t table) Put(ctx context.Context, key, value string) error {
	_, err := t.tx.Exec(ctx, "insert into data values ($1, $2) on conflict (key) do update set value = excluded.value", key, value)
	return err
}

func (t table) Delete(ctx context.Context, key string) error {
	_, err := t.tx.Exec(ctx, "delete from data where key = $1", key)
	return err
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			eachBegin(t, func(t *testing.T, db *database) {
				db.must("create table data (key text primary key, value text not null)")
				guardtest.Run(t, func(*testing.T) guardtest.Store {
					return store{db.guard, pgx.TxOptions{IsoLevel: level}}
				})
			})
		})
	}
}
