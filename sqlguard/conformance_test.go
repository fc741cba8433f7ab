package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-fencing/fencing/guard/guardtest"
	"github.com/go-fencing/fencing/sqlguard"
)

// store is a guard with a table of keys and values.
type store struct {
	*sqlguard.Guard
	dialect sqlguard.Dialect
	options *sql.TxOptions
}

func (s store) Update(ctx context.Context, fn func(context.Context, guardtest.Tx) error) error {
	for {
		err := s.InTxOptions(ctx, s.options, func(tx *sql.Tx) error { return fn(ctx, table{tx, s.dialect}) })
		if !sqlguard.Retryable(err) {
			return err
		}
	}
}

type table struct {
	tx      *sql.Tx
	dialect sqlguard.Dialect
}

func (t table) sql(query string) string {
	if t.dialect != sqlguard.Postgres {
		return query
	}
	var b []byte
	n := byte('0')
	for _, c := range []byte(query) {
		if c == '?' {
			n++
			b = append(b, '$', n)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func (t table) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	err = t.tx.QueryRowContext(ctx, t.sql("select v from data where k = ?"), key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}

func (t table) Put(ctx context.Context, key, value string) error {
	upsert := " on conflict (k) do update set v = excluded.v"
	if t.dialect == sqlguard.MySQL {
		upsert = " on duplicate key update v = values(v)"
	}
	_, err := t.tx.ExecContext(ctx, t.sql("insert into data (k, v) values (?, ?)"+upsert), key, value)
	return err
}

func (t table) Delete(ctx context.Context, key string) error {
	_, err := t.tx.ExecContext(ctx, t.sql("delete from data where k = ?"), key)
	return err
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, target := range targets {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t, target)
			guardtest.Run(t, func(*testing.T) guardtest.Store { return store{db.guard, db.dialect, nil} })
		})
	}
}
