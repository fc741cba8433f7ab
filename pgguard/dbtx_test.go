package pgguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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

// A deferred constraint fails when the implicit transaction commits, after the
// statement has succeeded.
func TestFailureToCommitASingleStatementIsReported(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		id := unique("k")
		const insert = "insert into kid values ($1, 'no such item') returning id"
		batch := func() *pgx.Batch {
			b := &pgx.Batch{}
			b.Queue(insert, id)
			return b
		}
		for name, call := range map[string]func() error{
			"Exec": func() error { _, err := db.guard.Exec(ctx, insert, id); return err },
			"Query": func() error {
				rows, err := db.guard.Query(ctx, insert, id)
				if err != nil {
					return err
				}
				_, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			},
			"Query closed early": func() error {
				rows, err := db.guard.Query(ctx, insert, id)
				if err != nil {
					return err
				}
				rows.Close()
				return rows.Err()
			},
			"QueryRow":  func() error { var got string; return db.guard.QueryRow(ctx, insert, id).Scan(&got) },
			"SendBatch": func() error { return db.guard.SendBatch(ctx, batch()).Close() },
			"SendBatch read by hand": func() error {
				results := db.guard.SendBatch(ctx, batch())
				_, _ = results.Exec()
				return results.Close()
			},
		} {
			err := call()
			require.ErrorContains(t, err, "23503", name)
			require.NotErrorIs(t, err, guard.ErrCommitUnknown, name)
		}
		require.Zero(t, one[int](db, "select count(*) from kid where id = $1", id))
		require.Zero(t, db.pool.Stat().AcquiredConns())
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

func TestArgumentsOfASingleStatement(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, f := db.raised(unique("r"), 1<<60+1, "A")
		id := unique("i")
		_, err := db.guard.Exec(ctx, "insert into item values (@id, @stock)", pgx.NamedArgs{"id": id, "stock": 7})
		require.NoError(t, err)
		_, err = db.guard.Exec(ctx, "update item set fence_token = $1 where id = $2", f.Token, id)
		require.NoError(t, err, "a token is a bigint")
		var token guard.Token
		require.NoError(t, db.guard.QueryRow(ctx, "select fence_token from item where id = @id", pgx.StrictNamedArgs{"id": id}).Scan(&token))
		require.Equal(t, f.Token, token)
		b := &pgx.Batch{}
		b.Queue("update item set stock = @stock where id = @id", pgx.NamedArgs{"id": id, "stock": 8})
		require.NoError(t, db.guard.SendBatch(ctx, b).Close())
		require.Equal(t, 8, db.stock(id))

		for _, option := range []any{pgx.QueryExecModeExec, pgx.QueryResultFormats{1}, pgx.QueryResultFormatsByOID{23: 1}} {
			for _, args := range [][]any{{option, 1}, {pgx.NamedArgs{}, option}} {
				_, err := db.guard.Exec(ctx, "select $1::int", args...)
				require.ErrorContains(t, err, "not supported")
				require.ErrorContains(t, db.guard.QueryRow(ctx, "select $1::int", args...).Scan(new(int)), "not supported")
				b := &pgx.Batch{}
				b.Queue("select $1::int", args...)
				require.ErrorContains(t, db.guard.SendBatch(ctx, b).Close(), "not supported")
			}
			// In a fenced transaction they work as ever.
			require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, "select $1::int", option, 1).Scan(new(int))
			}))
		}
		require.Zero(t, db.pool.Stat().AcquiredConns())
	})
}

// Without the refusal each of these would write, or let the next statement write,
// after the gate has been given up.
func TestStatementsThatWouldLeaveTheImplicitTransaction(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		id := unique("i")
		db.must("insert into item values ($1, 0)", id)
		db.must("create or replace procedure leave(i text) language plpgsql as $$ begin commit; update item set stock = 1 where id = i; end $$")
		for _, sql := range []string{
			"commit", "Begin", "start transaction", "rollback", "/**/end", "abort", "prepare transaction 'p'",
			"call leave('" + id + "')", "do $$ begin commit; update item set stock = 1; end $$",
			"select 1; commit", "select 1; select 2", "", " -- nothing", ";",
		} {
			_, err := db.guard.Exec(ctx, sql)
			require.ErrorContains(t, err, "nothing was sent", sql)
			rows, err := db.guard.Query(ctx, sql)
			require.ErrorContains(t, err, "nothing was sent", sql)
			rows.Close()
			require.ErrorContains(t, db.guard.QueryRow(ctx, sql).Scan(), "nothing was sent", sql)
			b := &pgx.Batch{}
			b.Queue(sql)
			b.Queue("update item set stock = 1 where id = $1", id)
			require.ErrorContains(t, db.guard.SendBatch(ctx, b).Close(), "nothing was sent", sql)
			require.Zero(t, db.stock(id), sql)
		}
		// What the server refuses by itself.
		for _, sql := range []string{"savepoint s", "vacuum item", "discard all"} {
			_, err := db.guard.Exec(ctx, sql)
			require.Error(t, err, sql)
		}
		// In a transaction that the batch begins, a procedure cannot commit.
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue("call leave($1)", id)
		results := db.guard.SendBatch(ctx, b)
		require.ErrorContains(t, results.Close(), "invalid transaction termination")
		require.NoError(t, results.Tx().Rollback(ctx))
		b = &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		b.Queue("commit")
		results = db.guard.SendBatch(ctx, b)
		require.ErrorContains(t, results.Close(), "end the fenced transaction")
		require.ErrorIs(t, results.Tx().Rollback(ctx), pgx.ErrTxClosed)
		require.ErrorIs(t, results.Tx().Commit(ctx), pgx.ErrTxClosed)
		require.Zero(t, db.stock(id))
		require.Zero(t, db.pool.Stat().AcquiredConns())
		require.Zero(t, one[int](db, "select count(*)"+gateLocks, resource))
	})
}

func TestRowsGiveTheirConnectionBackOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		acquired := func() int32 { return db.pool.Stat().AcquiredConns() }

		rows, err := db.guard.Query(ctx, "select generate_series(1, 3)")
		require.NoError(t, err)
		require.EqualValues(t, 1, acquired())
		require.NotNil(t, rows.Conn())
		require.True(t, rows.Next())
		values, err := rows.Values()
		require.NoError(t, err)
		require.Equal(t, []any{int32(1)}, values)
		require.NoError(t, rows.Err())
		for rows.Next() {
		}
		require.Zero(t, acquired())
		rows.Close()
		rows.Close()
		require.NoError(t, rows.Err())
		require.Equal(t, "SELECT 3", rows.CommandTag().String())

		rows, err = db.guard.Query(ctx, "select 'x'")
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.Error(t, rows.Scan(new(int)))
		require.Zero(t, acquired(), "a failed Scan closes the rows, as in pgx")
		require.Error(t, rows.Err())

		require.ErrorIs(t, db.guard.QueryRow(ctx, "select 1 where false").Scan(new(int)), pgx.ErrNoRows)
		require.Error(t, db.guard.QueryRow(ctx, "select 1").Scan(new(pgtype.DriverBytes)))
		require.Error(t, db.guard.QueryRow(ctx, "select 1").Scan(new(int), new(int)))
		require.Panics(t, func() { _ = db.guard.QueryRow(ctx, "select 1").Scan(panicker{}) })
		b := &pgx.Batch{}
		b.Queue("select 1").Exec(func(pgconn.CommandTag) error { panic("a callback of the caller") })
		require.Panics(t, func() { _ = db.guard.SendBatch(ctx, b).Close() })
		require.Error(t, db.guard.QueryRow(ctx, "select 1/0").Scan(new(int)))
		rows, err = db.guard.Query(ctx, "select 1/(3-x) from generate_series(1, 3) x")
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
		}
		require.ErrorContains(t, err, "division by zero")
		require.Zero(t, acquired())
	})
}

func TestErrorsOfABatchOutliveIt(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		b := &pgx.Batch{}
		b.Queue("select 1/(3-x) from generate_series(1, 3) x")
		b.Queue("select 2")
		results := db.guard.SendBatch(ctx, b)
		rows, _ := results.Query()
		rows.Close()
		row := results.QueryRow()
		require.ErrorContains(t, results.Close(), "division by zero")
		require.ErrorContains(t, rows.Err(), "division by zero")
		require.Error(t, row.Scan(new(int)))
		require.ErrorContains(t, results.Close(), "division by zero")
	})
}

func TestRowsThatAreNotReadKeepTheGate(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		rows, err := db.guard.Query(ctx, "select repeat('x', 1000) from generate_series(1, 50000)")
		require.NoError(t, err)
		defer rows.Close()
		require.Equal(t, 1, one[int](db, "select count(*)"+gateLocks, resource), "the server has more to send")
		rows.Close()
		require.NoError(t, rows.Err())
		require.Zero(t, one[int](db, "select count(*)"+gateLocks, resource))
	})
}

type panicker struct{}

func (panicker) Scan(any) error { panic("a scanner of the caller") }

func TestBatchOfTheCallerStaysAsItWas(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	b := &pgx.Batch{}
	first, second := b.Queue("select 1"), b.Queue("select 2")
	require.NoError(t, db.guard.SendBatch(ctx, b).Close())
	require.Equal(t, 2, b.Len())
	require.Same(t, first, b.QueuedQueries[0])
	require.Same(t, second, b.QueuedQueries[1])
	require.NoError(t, db.guard.SendBatch(ctx, &pgx.Batch{}).Close(), "nothing to do under a current fence")

	b = &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	b.Queue("select 1")
	results := db.guard.SendBatch(ctx, b)
	require.NoError(t, results.Close())
	require.NoError(t, results.Tx().Rollback(ctx))
	require.Equal(t, 2, b.Len())
	require.Equal(t, "begin", b.QueuedQueries[0].SQL)
}

func TestBatchWhoseBeginFailsGivesItsConnectionBack(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		for name, end := range map[string]func(pgx.Tx) error{
			"Commit":   func(tx pgx.Tx) error { return tx.Commit(ctx) },
			"Rollback": func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		} {
			b := &pgx.Batch{}
			b.BeginTx(pgx.TxOptions{BeginQuery: "begin nonsense"})
			b.Queue("select 1")
			results := db.guard.SendBatch(ctx, b)
			require.ErrorContains(t, results.Close(), "42601", name)
			require.ErrorIs(t, end(results.Tx()), pgx.ErrTxClosed, name)
			require.Zero(t, db.pool.Stat().AcquiredConns(), name)
		}
	})
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
