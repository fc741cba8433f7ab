package sqlguard_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/sqlguard"
)

// The ratio of guarded to unguarded is what travels; the times do not.
func BenchmarkSingleUpdate(b *testing.B) {
	for _, target := range []target{postgres, mariadb, sqliteWAL} {
		db := newDatabase(b, target)
		db.must("insert into item (id, stock) values ('a', 0)")
		ctx, _ := db.raised("r", 1, "A")
		wrapped := db.openDB(sqlguard.Wrap(db.connector, db.dialect))
		update := func(ctx context.Context, tx interface {
			ExecContext(context.Context, string, ...any) (sql.Result, error)
		},
		) error {
			_, err := tx.ExecContext(ctx, "update item set stock = stock + 1 where id = 'a'")
			return err
		}
		inTx := func(ctx context.Context, pool *sql.DB) error {
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := update(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		}
		run := func(name string, do func() error) {
			b.Run(target.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, do())
				}
			})
		}
		run("unguarded transaction", func() error { return inTx(context.Background(), db.db) })
		run("InTx", func() error { return db.guard.InTx(ctx, func(tx *sql.Tx) error { return update(ctx, tx) }) })
		run("wrapped transaction", func() error { return inTx(ctx, wrapped) })
		run("unguarded statement", func() error { return update(context.Background(), db.db) })
		run("wrapped statement", func() error { return update(ctx, wrapped) })
	}
}

func BenchmarkRaise(b *testing.B) {
	for _, target := range []target{postgres, mariadb, sqliteWAL} {
		db := newDatabase(b, target)
		f := fence("r", 0, "A")
		b.Run(target.name, func(b *testing.B) {
			for b.Loop() {
				f.Token++
				require.NoError(b, db.guard.Raise(b.Context(), f))
			}
		})
	}
}
