package pgguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// What sqlc generates for pgx, with :batch and :copyfrom queries.
type sqlcDBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	CopyFrom(ctx context.Context, tableName pgx.Identifier, columnNames []string, rowSrc pgx.CopyFromSource) (int64, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

var _ sqlcDBTX = (*pgguard.Guard)(nil)

// writes are all ways to write item id through a DBTX.
var writes = map[string]func(ctx context.Context, db sqlcDBTX, id string) error{
	"Exec": func(ctx context.Context, db sqlcDBTX, id string) error {
		tag, err := db.Exec(ctx, "insert into item values ($1, 100)", id)
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("command tag " + tag.String())
		}
		return err
	},
	"Exec without arguments": func(ctx context.Context, db sqlcDBTX, id string) error {
		_, err := db.Exec(ctx, "insert into item values ('"+id+"', 100)")
		return err
	},
	"Query": func(ctx context.Context, db sqlcDBTX, id string) error {
		rows, err := db.Query(ctx, "insert into item values ($1, 100) returning id", id)
		ids, collectErr := pgx.CollectRows(rows, pgx.RowTo[string])
		if collectErr == nil && (len(ids) != 1 || ids[0] != id || rows.CommandTag().String() != "INSERT 0 1") {
			collectErr = errors.New("wrong rows")
		}
		if err != nil && !errors.Is(collectErr, err) {
			return errors.New("Query and Err differ")
		}
		return collectErr
	},
	"Query closed early": func(ctx context.Context, db sqlcDBTX, id string) error {
		rows, _ := db.Query(ctx, "insert into item values ($1, 100) returning id", id)
		rows.Close()
		return rows.Err()
	},
	"QueryRow": func(ctx context.Context, db sqlcDBTX, id string) error {
		var stock int
		err := db.QueryRow(ctx, "insert into item values ($1, 100) returning stock", id).Scan(&stock)
		if err == nil && stock != 100 {
			err = errors.New("wrong stock")
		}
		return err
	},
	"SendBatch": func(ctx context.Context, db sqlcDBTX, id string) error {
		b := &pgx.Batch{}
		b.Queue("insert into item values ($1, 99)", id)
		b.Queue("update item set stock = 100 where id = $1", id)
		return db.SendBatch(ctx, b).Close()
	},
	"SendBatch read by hand": func(ctx context.Context, db sqlcDBTX, id string) error {
		b := &pgx.Batch{}
		b.Queue("insert into item values ($1, 99)", id)
		b.Queue("update item set stock = 100 where id = $1 returning stock", id)
		b.Queue("select id from item where id = $1", id)
		results := db.SendBatch(ctx, b)
		_, err := results.Exec()
		var stock int
		err = errors.Join(err, results.QueryRow().Scan(&stock))
		rows, queryErr := results.Query()
		ids, collectErr := pgx.CollectRows(rows, pgx.RowTo[string])
		err = errors.Join(err, queryErr, collectErr, results.Close())
		if err == nil && (stock != 100 || len(ids) != 1 || results.Tx() != nil) {
			err = errors.New("wrong results")
		}
		return err
	},
	"SendBatch with callbacks": func(ctx context.Context, db sqlcDBTX, id string) error {
		b := &pgx.Batch{}
		var order []int
		b.Queue("insert into item values ($1, 99)", id).Exec(func(pgconn.CommandTag) error { order = append(order, 1); return nil })
		b.Queue("update item set stock = 100 where id = $1 returning stock", id).QueryRow(func(row pgx.Row) error {
			order = append(order, 2)
			var stock int
			return row.Scan(&stock)
		})
		err := db.SendBatch(ctx, b).Close()
		if err == nil && len(order) != 2 {
			err = errors.New("a callback was not called")
		}
		return err
	},
	"SendBatch that begins": func(ctx context.Context, db sqlcDBTX, id string) error {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		b.Queue("insert into item values ($1, 99)", id)
		results := db.SendBatch(ctx, b)
		tx := results.Tx()
		defer func() { _ = tx.Rollback(context.Background()) }()
		if err := results.Close(); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update item set stock = 100 where id = $1", id); err != nil {
			return err
		}
		return tx.Commit(ctx)
	},
	"SendBatch that begins, read by hand": func(ctx context.Context, db sqlcDBTX, id string) error {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue("insert into item values ($1, 99) returning stock", id)
		b.Queue("update item set stock = 100 where id = $1", id)
		results := db.SendBatch(ctx, b)
		tx := results.Tx()
		defer func() { _ = tx.Rollback(context.Background()) }()
		begin, err := results.Exec()
		var stock int
		err = errors.Join(err, results.QueryRow().Scan(&stock))
		_, execErr := results.Exec()
		if err = errors.Join(err, execErr, results.Close()); err != nil {
			return err
		}
		if begin.String() != "BEGIN" || stock != 99 {
			return errors.New("wrong results")
		}
		return tx.Commit(ctx)
	},
	"CopyFrom": func(ctx context.Context, db sqlcDBTX, id string) error {
		n, err := db.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"id", "stock"}, pgx.CopyFromRows([][]any{{id, 100}}))
		if err == nil && n != 1 {
			err = errors.New("wrong count")
		}
		return err
	},
}

func TestEveryWayToWriteIsFenced(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		aCtx, a := db.raised(resource, 33, "A")
		several, other := db.raised(unique("other"), 1, "A")
		several = guard.NewContext(several, a)
		for name, write := range writes {
			id := unique(name)
			require.NoError(t, write(aCtx, db.guard, id), name)
			require.Equal(t, 100, db.stock(id), name)
			require.Error(t, write(aCtx, db.guard, id), "%s: a duplicate key", name)
			id = unique(name)
			require.NoError(t, write(several, db.guard, id), name)
			require.Equal(t, 100, db.stock(id), name)
		}
		require.Zero(t, db.pool.Stat().AcquiredConns())

		_, b := db.raised(resource, 34, "B")
		for name, write := range writes {
			id := unique(name)
			err := write(t.Context(), db.guard, id)
			require.ErrorIs(t, err, guard.ErrNoFence, name)
			requireStale(t, write(aCtx, db.guard, id), a, b)
			requireStale(t, write(several, db.guard, id), a, b)
			err = write(guard.NewContext(t.Context(), fence("nobody's", 1, "A")), db.guard, id)
			require.ErrorIs(t, err, guard.ErrNotRaised, name)
			foreign := other
			foreign.Nonce = "another nonce"
			err = write(guard.NewContext(t.Context(), foreign), db.guard, id)
			require.ErrorIs(t, err, guard.ErrConflict, name)
			require.Zero(t, one[int](db, "select count(*) from item where id = $1", id), name)
		}
		require.Zero(t, db.pool.Stat().AcquiredConns())
		require.Zero(t, one[int](db, "select count(*)"+gateLocks, resource))
	})
}

func TestSingleStatementTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	trips := &tripCounter{}
	db.pool = newPool(t, db.url, trips.count, func(c *pgxpool.Config) { c.MaxConns = 1 })
	db.guard = newGuard(t, db.pool)
	ctx, _ := db.raised("r", 1, "A")
	for name, write := range writes {
		if name == "CopyFrom" || name == "SendBatch that begins" {
			continue // more by nature
		}
		if name == "Exec without arguments" {
			_, err := db.guard.Exec(ctx, "insert into item values ('"+name+"', 100)")
			require.NoError(t, err)
			db.must("delete from item")
			trips.reset()
			require.NoError(t, write(ctx, db.guard, name))
			require.Equal(t, 1, trips.reset(), name)
			continue
		}
		require.NoError(t, write(ctx, db.guard, unique(name)), name) // prepares
		trips.reset()
		require.NoError(t, write(ctx, db.guard, unique(name)), name)
		want := 1
		if name == "SendBatch that begins, read by hand" {
			want = 2 // and COMMIT
		}
		require.Equal(t, want, trips.reset(), name)
	}
}

func TestMissingTableIsTheServersOwnError(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		_, err := db.guard.Exec(ctx, "insert into nowhere values (1)")
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "42P01", pgErr.Code)
		require.NotErrorIs(t, err, pgguard.ErrSchema)
	})
}
