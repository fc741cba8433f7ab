package pgguard_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// doubled is a rewriter of the caller's. It makes two statements of one.
type doubled struct{}

func (doubled) RewriteQuery(_ context.Context, _ *pgx.Conn, sql string, args []any) (string, []any, error) {
	return sql + ";" + sql, args, nil
}

// valuer is an argument that cannot be encoded.
type valuer struct{}

func (valuer) Value() (driver.Value, error) { panic("a valuer of the caller") }

// execs is a call of Exec, of which the command tag is the result.
func execs(sql string, args ...any) func(context.Context, pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		tag, err := tx.Exec(ctx, sql, args...)
		return tag.String(), err
	}
}

// queries is a call of Query, of which all values and the types are the result.
func queries(sql string, args ...any) func(context.Context, pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		rows, _ := tx.Query(ctx, sql, args...) // its error is that of the rows
		defer rows.Close()
		var result []any
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				return result, err
			}
			result = append(result, values)
			for _, f := range rows.FieldDescriptions() {
				result = append(result, f.Name, f.DataTypeOID, f.Format)
			}
		}
		return append(result, rows.CommandTag().String()), rows.Err()
	}
}

// scans is a call of QueryRow, of which a number is the result.
func scans(sql string, args ...any) func(context.Context, pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		var n int
		err := tx.QueryRow(ctx, sql, args...).Scan(&n)
		return n, err
	}
}

func sends(queue func(*pgx.Batch)) func(context.Context, pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		b := &pgx.Batch{}
		queue(b)
		results := tx.SendBatch(ctx, b)
		if results.Tx() != nil { // pgx refuses such a batch, and its transaction is closed
			return results.Tx().Rollback(ctx), results.Close()
		}
		tag, err := results.Exec()
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
		return tag.String(), err
	}
}

// firsts are calls that may be the first one of a transaction, with whether they
// carry BEGIN along where the pool is not in the simple protocol. The item "x" is
// there, with a stock of 100.
var firsts = map[string]struct {
	carries bool
	call    func(ctx context.Context, tx pgx.Tx) (any, error)
}{
	"Exec":                        {true, execs("update item set stock = $1 where id = 'x'", 7)},
	"Exec of a query":             {true, execs("select generate_series(1, $1::int)", 3)},
	"Exec, named arguments":       {true, execs("update item set stock = @stock where id = 'x'", pgx.NamedArgs{"stock": 7})},
	"Exec, strict arguments":      {true, execs("update item set stock = @stock where id = 'x';", pgx.StrictNamedArgs{"stock": 7})},
	"Exec, an argument missing":   {false, execs("update item set stock = @stock where id = 'x'", pgx.StrictNamedArgs{})},
	"Exec without arguments":      {false, execs("update item set stock = 7 where id = 'x'")},
	"Exec of several":             {false, execs("update item set stock = 7 where id = 'x'; insert into item values ('y', 1), ('z', 1)")},
	"Exec of several, arguments":  {false, execs("select $1::int; select 2", 1)},
	"Exec of nothing":             {false, execs(" -- nothing")},
	"Exec of a definition":        {false, execs("create table made (id int)")},
	"Exec, mode":                  {false, execs("update item set stock = $1 where id = 'x'", pgx.QueryExecModeExec, 7)},
	"Exec, mode after a rewriter": {false, execs("update item set stock = @s where id = 'x'", pgx.NamedArgs{"s": 7}, pgx.QueryExecModeExec)},
	"Exec, rewriter":              {false, execs("update item set stock = stock + 1 where id = 'x'", doubled{})},
	"Exec, commit":                {false, execs("commit")},
	"Exec, duplicate key":         {true, execs("insert into item values ($1, 1)", "x")},
	"Exec, syntax error":          {false, execs("update item st stock = $1", 7)},
	"Exec, no such table":         {false, execs("update nowhere set stock = $1", 7)},
	"Exec, too many arguments":    {false, execs("update item set stock = $1", 7, 8)},
	"Exec, too few arguments":     {false, execs("update item set stock = $1 where id = $2", 7)},
	"Exec, not encodable":         {false, execs("update item set stock = $1", make(chan int))},
	"Exec, out of range":          {false, execs("update item set stock = $1", int64(math.MaxInt64))},
	"Query":                       {true, queries("select id, stock from item where id = $1", "x")},
	"Query without arguments":     {true, queries("select id, stock, now() is not null, 1.5::numeric, array[1,2] from item")},
	"Query, no rows":              {true, queries("select 1 where false")},
	"Query, returning":            {true, queries("update item set stock = $1 returning stock", 7)},
	"Query that fails half way":   {true, queries("select 1/(3-x) from generate_series(1, $1::int) x", 5)},
	"Query of no such function":   {false, queries("select nobody_knows($1)", 1)},
	"Query of several":            {false, queries("select 1; select 2")},
	"Query of nothing":            {false, queries("")},
	"Query, too many arguments":   {false, queries("select $1::int", 1, 2)},
	"Query, formats":              {false, queries("select stock from item", pgx.QueryResultFormats{0})},
	"Query, formats by type":      {false, queries("select stock from item", pgx.QueryResultFormatsByOID{23: 0})},
	"QueryRow":                    {true, scans("select stock from item where id = $1", "x")},
	"QueryRow, no rows":           {true, scans("select stock from item where id = $1", "nobody")},
	"QueryRow, first of several":  {true, scans("select generate_series(1, $1::int)", 3)},
	"QueryRow, wrong type":        {true, scans("select id from item where id = $1", "x")},
	"QueryRow, division by zero":  {true, scans("select 1 / $1::int", 0)},
	"QueryRow, syntax error":      {false, scans("selct $1", 0)},
	"SendBatch": {true, sends(func(b *pgx.Batch) {
		b.Queue("update item set stock = $1 where id = 'x'", 7)
		b.Queue("insert into item values ($1, 1)", "y")
	})},
	"SendBatch, duplicate key": {true, sends(func(b *pgx.Batch) {
		b.Queue("update item set stock = $1 where id = 'x'", 7)
		b.Queue("insert into item values ($1, 1)", "x")
	})},
	"SendBatch, named arguments": {true, sends(func(b *pgx.Batch) {
		b.Queue("update item set stock = @stock where id = 'x'", pgx.NamedArgs{"stock": 7})
	})},
	"SendBatch, no such table": {false, sends(func(b *pgx.Batch) {
		b.Queue("update item set stock = @stock where id = 'x'", pgx.NamedArgs{"stock": 7})
		b.Queue("insert into nowhere values ($1)", 1)
	})},
	"SendBatch, not encodable": {false, sends(func(b *pgx.Batch) {
		b.Queue("update item set stock = $1 where id = 'x'", 7)
		b.Queue("update item set stock = $1 where id = 'x'", make(chan int))
	})},
	"SendBatch of nothing":  {false, sends(func(*pgx.Batch) {})},
	"SendBatch that begins": {false, sends(func(b *pgx.Batch) { b.BeginTx(pgx.TxOptions{}) })},
	"SendBatch with a callback": {true, func(ctx context.Context, tx pgx.Tx) (result any, err error) {
		b := &pgx.Batch{}
		b.Queue("select stock from item where id = $1", "x").QueryRow(func(row pgx.Row) error {
			var n int
			defer func() { result = n }()
			return row.Scan(&n)
		})
		err = tx.SendBatch(ctx, b).Close()
		return result, err
	}},
	"UpdateRow": {true, func(ctx context.Context, tx pgx.Tx) (any, error) {
		return nil, pgguard.UpdateRow(ctx, tx, sale(guard.Fences(ctx)[0].Resource, "x"))
	}},
	"Enter": {true, func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, pgguard.Enter(ctx, tx) }},
	"Prepare": {false, func(ctx context.Context, tx pgx.Tx) (any, error) {
		sd, err := tx.Prepare(ctx, "p", "select $1::int")
		if err != nil {
			return nil, err
		}
		return sd.ParamOIDs, err
	}},
	"Prepare, syntax error": {false, func(ctx context.Context, tx pgx.Tx) (any, error) {
		_, err := tx.Prepare(ctx, "p", "selct $1::int")
		return nil, err
	}},
	"CopyFrom": {false, func(ctx context.Context, tx pgx.Tx) (any, error) {
		return tx.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"id", "stock"}, pgx.CopyFromRows([][]any{{"y", 1}}))
	}},
	"savepoint": {false, func(ctx context.Context, tx pgx.Tx) (any, error) {
		return nil, pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
			_, err := nested.Exec(ctx, "update item set stock = $1 where id = 'x'", 7)
			return err
		})
	}},
	"LargeObjects": {false, func(ctx context.Context, tx pgx.Tx) (any, error) {
		objects := tx.LargeObjects()
		_, err := objects.Create(ctx, 0)
		return nil, err
	}},
	"Conn": {false, func(ctx context.Context, tx pgx.Tx) (any, error) {
		tag, err := tx.Conn().Exec(ctx, "update item set stock = $1 where id = 'x'", 7)
		return tag.String(), err
	}},
}

// What a transaction says to each first call, to the call after it and to Commit,
// and what is in the table then, does not depend on when it begins.
func TestDeferredTransactionAnswersAsOneThatHasBegun(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		deferred := db.in(t, db.pool.Config().ConnConfig.DefaultQueryExecMode, true)
		answers := func(g *pgguard.Guard, ctx context.Context, call func(context.Context, pgx.Tx) (any, error)) (out []any) {
			t.Helper()
			db.must("drop table if exists made")
			db.must("delete from item")
			db.must("insert into item values ('x', 100)")
			tx, err := g.BeginTx(ctx, pgx.TxOptions{})
			require.NoError(t, err)
			say := func(what any, err error) {
				var pgErr *pgconn.PgError
				if errors.As(err, &pgErr) {
					require.NotEqual(t, "26000", pgErr.Code, "a prepared statement is missing")
					out = append(out, what, pgErr.Code, pgErr.Message, pgErr.Position)
				}
				text := strings.Replace(fmt.Sprint(err), "failed to deallocate cached statement(s): ", "", 1)
				if i := strings.Index(text, "0x"); i >= 0 {
					text = text[:i] // an address
				}
				out = append(out, what, text)
			}
			say(call(ctx, tx))
			var held string
			err = tx.QueryRow(ctx, "select coalesce(current_setting('fencing.held', true), '')").Scan(&held)
			say(held, err)
			say(nil, tx.Commit(ctx))
			say(nil, tx.Commit(ctx))
			say(nil, tx.Rollback(ctx))
			return append(out, one[*string](db, "select string_agg(id || stock, ',' order by id) from item"))
		}
		for name, first := range firsts {
			ctx, _ := db.raised(unique("r"), 1, "A")
			want := answers(db.guard, ctx, first.call)
			require.Equal(t, want, answers(deferred.guard, ctx, first.call), name)
			require.Equal(t, want, answers(deferred.guard, ctx, first.call), "%s, prepared", name)
			requireIdle(t, deferred.pool)
		}
	})
}

func TestFirstStatementCarriesBeginAndEnter(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.must("insert into item values ('x', 100)")
	plain, _ := db.raised(unique("r"), 1, "A")
	several, _ := db.raised(unique("s"), 1, "A")
	several = guard.NewContext(plain, guard.Fences(several)...)
	for _, mode := range modes {
		trips := &tripCounter{}
		pool := newPool(t, db.url, trips.count, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = mode
			c.MaxConns = 1
		})
		g := newGuard(t, pool, pgguard.WithDeferredBegin())
		require.NoError(t, g.InTx(plain, nothing)) // checks the schema
		trips.reset()
		statement, run := 1, 1 // round trips of a statement, and to begin
		if mode == pgx.QueryExecModeDescribeExec {
			statement, run = 2, 2
		}
		for name, first := range firsts {
			if !first.carries || mode == pgx.QueryExecModeSimpleProtocol {
				continue
			}
			for _, ctx := range []context.Context{plain, several} {
				for _, o := range []pgx.TxOptions{{}, {IsoLevel: pgx.Serializable}, {AccessMode: pgx.ReadOnly}} {
					for last := range 2 {
						tx, err := g.BeginTx(ctx, o)
						require.NoError(t, err)
						require.Zero(t, trips.reset(), "BeginTx sends nothing")
						_, err = first.call(ctx, tx)
						if n := trips.reset(); last == 1 && err == nil { // the first time and after an error it prepares
							require.Equal(t, statement, n, "%s in mode %v", name, mode)
						}
						require.NoError(t, tx.Rollback(ctx))
						trips.reset()
					}
				}
			}
		}

		// Against pgx without a guard.
		update := func(tx pgx.Tx) error {
			_, err := tx.Exec(plain, "update item set stock = $1 where id = 'x'", 7)
			return err
		}
		require.NoError(t, g.InTx(plain, update))
		require.NoError(t, pgx.BeginFunc(plain, pool, update))
		trips.reset()
		require.NoError(t, g.InTx(plain, update))
		guarded := trips.reset()
		require.NoError(t, pgx.BeginFunc(plain, pool, update))
		unguarded := trips.reset()
		if mode == pgx.QueryExecModeSimpleProtocol {
			require.Equal(t, unguarded, guarded, "it carries nothing")
		} else {
			require.Equal(t, statement+1, guarded, "the statement and COMMIT")
			require.Equal(t, unguarded-1, guarded)
		}
		require.NoError(t, g.InTx(plain, nothing))
		require.Equal(t, run+1, trips.reset(), "without a statement it begins and commits")

		// A statement that fails is forgotten by pgx, and no other.
		if mode == pgx.QueryExecModeCacheStatement {
			require.Error(t, g.InTx(plain, inserts(plain, "x")))
			trips.reset()
			require.NoError(t, g.InTx(plain, update))
			require.Equal(t, 3, trips.reset(), "the failed statement is deallocated first")
			require.NoError(t, g.InTx(plain, update))
			require.Equal(t, 2, trips.reset())
		}

		// Nor does pgx prepare what it sends without arguments, literals and all.
		require.NoError(t, g.InTx(plain, func(tx pgx.Tx) error {
			_, err := tx.Exec(plain, "update item set stock = 8 where id = 'x'")
			return err
		}))
		var prepared int
		require.NoError(t, pool.QueryRow(plain, "select count(*) from pg_prepared_statements where statement like 'update item set stock = 8%'").Scan(&prepared))
		require.Zero(t, prepared)
		trips.reset()

		tx, err := g.Begin(plain)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(plain))
		require.ErrorIs(t, tx.Rollback(plain), pgx.ErrTxClosed)
		require.ErrorIs(t, tx.Commit(plain), pgx.ErrTxClosed)
		_, err = tx.Exec(plain, "select $1::int", 1)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.Zero(t, trips.reset(), "nothing to roll back")
		requireIdle(t, pool)
	}
}

// The refusal comes out of the first call and of all later ones, whatever the
// function makes of it, and the observer is told once.
func TestDeferredRefusalIsNotToBeSwallowed(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		var r recorder
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin(), pgguard.WithObserver(r.observe))
		resource := unique("r")
		aCtx, a := db.raised(resource, 33, "A")
		_, b := db.raised(resource, 34, "B")
		several, _ := db.raised(unique("s"), 1, "A")
		several = guard.NewContext(several, a)
		db.must("delete from item")
		db.must("insert into item values ('x', 100)")
		own := errors.New("the function's own")
		for name, first := range firsts {
			quiet := name == "Exec, commit" || name == "LargeObjects" || name == "Conn" // its own error is not the refusal
			for _, ctx := range []context.Context{aCtx, several} {
				for how, c := range map[string]struct {
					returns func(err error) error
					also    error // that InTx returns
					needs   bool  // the refusal as the error
				}{
					"returned":       {func(err error) error { return err }, nil, true},
					"wrapped":        {func(err error) error { return fmt.Errorf("%w: %w", own, err) }, own, true},
					"hidden":         {func(error) error { return own }, own, false},
					"swallowed":      {func(error) error { return nil }, nil, false},
					"taken apart":    {func(err error) error { var p *pgconn.PgError; errors.As(err, &p); return p }, nil, true},
					"as it is meant": {func(err error) error { var s *guard.StaleError; errors.As(err, &s); return s }, nil, true},
				} {
					if quiet && c.needs || len(guard.Fences(ctx)) > 1 && how != "hidden" {
						continue
					}
					err := g.InTx(ctx, func(tx pgx.Tx) error {
						_, err := first.call(ctx, tx)
						require.Error(t, err, name)
						_, later := tx.Exec(ctx, "update item set stock = 0 where id = $1", "x")
						requireStale(t, later, a, b)
						requireStale(t, tx.QueryRow(ctx, "select 1").Scan(nil), a, b)
						if !quiet {
							require.ErrorIs(t, err, later, name)
						}
						return c.returns(err)
					})
					requireStale(t, err, a, b)
					if c.also != nil {
						require.ErrorIs(t, err, c.also, name)
					}
					events := r.take()
					require.Len(t, events, 1, "%s, %s", name, how)
					require.Equal(t, guard.EventRefused, events[0].Kind)
					require.ErrorIs(t, events[0].Err, guard.ErrStale)
				}
			}
		}
		requireIdle(t, db.pool)

		// The function ends the transaction itself.
		for name, end := range map[string]func(tx pgx.Tx) error{
			"commit":   func(tx pgx.Tx) error { requireStale(t, tx.Commit(aCtx), a, b); return nil },
			"rollback": func(tx pgx.Tx) error { return tx.Rollback(aCtx) },
		} {
			err := g.InTx(aCtx, func(tx pgx.Tx) error {
				_, err := tx.Exec(aCtx, "update item set stock = $1", 0)
				requireStale(t, err, a, b)
				err = end(tx)
				_, later := tx.Exec(aCtx, "update item set stock = $1", 0)
				require.ErrorIs(t, later, pgx.ErrTxClosed, name)
				return err
			})
			requireStale(t, err, a, b)
			require.Len(t, r.take(), 1, name)
		}
		require.Equal(t, 100, db.stock("x"))
		require.NoError(t, guardOnly(db, resource))
	})
}

// requireIdle waits until the pool has no connection in use. It counts one that is
// being closed.
func requireIdle(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond)
}

// guardOnly checks that nothing of a transaction is left.
func guardOnly(db *database, resource string) error {
	if n := db.pool.Stat().AcquiredConns(); n != 0 {
		return fmt.Errorf("%d connections are in use", n)
	}
	if n := one[int](db, "select count(*)"+gateLocks, resource); n != 0 {
		return fmt.Errorf("the gate is held %d times", n)
	}
	return nil
}

// What a transaction that could not be entered hands out for use by hand writes
// nothing.
func TestConnectionOfARefusedTransactionWritesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin())
		resource := unique("r")
		aCtx, _ := db.raised(resource, 33, "A")
		require.NoError(t, g.InTx(aCtx, nothing))
		db.raised(resource, 34, "B")
		err := g.InTx(aCtx, func(tx pgx.Tx) error {
			_, err := tx.Conn().Exec(t.Context(), "insert into item values ('by hand', 1)")
			require.ErrorContains(t, err, "25P02", "the transaction is aborted")
			objects := tx.LargeObjects()
			_, err = objects.Create(t.Context(), 0)
			require.Error(t, err)
			return nil
		})
		require.ErrorIs(t, err, guard.ErrStale)

		// It could not even be begun.
		db.must("alter schema fencing rename to elsewhere")
		defer db.must("alter schema elsewhere rename to fencing")
		err = g.InTx(aCtx, func(tx pgx.Tx) error {
			_, err := tx.Conn().Exec(t.Context(), "insert into item values ('by hand', 1)")
			require.Error(t, err)
			return nil
		})
		require.ErrorIs(t, err, pgguard.ErrSchema)
		require.Zero(t, one[int](db, "select count(*) from item"))
		requireIdle(t, db.pool)
	})
}

// As long as it has not begun a transaction is none: no raise waits for it.
func TestTransactionThatHasNotBegunDelaysNoRaise(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, pgguard.WithDeferredBegin())
	aCtx, a := db.raised("r", 33, "A")
	tx, err := db.guard.Begin(aCtx)
	require.NoError(t, err)
	_, b := db.raised("r", 34, "B")
	_, err = tx.Exec(aCtx, "insert into item values ($1, 1)", "late")
	requireStale(t, err, a, b)
	requireStale(t, tx.Commit(aCtx), a, b)
	require.NoError(t, guardOnly(db, "r"))
	require.Zero(t, one[int](db, "select count(*) from item"))
}

// The carried statement waits inside the fenced transaction.
func TestS29_CarriedStatementThatWaitsIsStillFenced(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin())
		id := unique("i")
		aCtx, _ := db.raised(id, 33, "A")
		db.must("insert into item values ($1, 100)", id)
		locker, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = locker.Exec(t.Context(), "update item set stock = 50 where id = $1", id)
		require.NoError(t, err)
		write := background(t, func() error {
			return g.InTx(aCtx, func(tx pgx.Tx) error {
				_, err := tx.Exec(aCtx, "update item set stock = stock - 1 where id = $1", id)
				return err
			})
		})
		db.await("select count(*) > 0 from pg_locks where not granted and locktype = 'transactionid'")
		raise := background(t, func() error { return db.guard.Raise(t.Context(), fence(id, 34, "B")) })
		db.awaitBlocked(id)
		require.NoError(t, locker.Commit(t.Context()))
		require.NoError(t, write())
		require.NoError(t, raise())
		require.Equal(t, 49, db.stock(id))
	})
}

// Entering waits for a raise; the carried statement sees what came with that.
func TestS30_CarriedStatementSeesWhatEnterHasWaitedFor(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		g := newGuard(t, db.pool, pgguard.WithDeferredBegin())
		id := unique("i")
		a := fence(id, 33, "A")
		aCtx := guard.NewContext(t.Context(), a)
		raiser, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "select fencing.raise($1, 33, $2, 'A')", id, a.Nonce)
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "insert into item values ($1, 7)", id)
		require.NoError(t, err)
		var n int
		read := background(t, func() error {
			return g.InTx(aCtx, func(tx pgx.Tx) error {
				return tx.QueryRow(aCtx, "select stock from item where id = $1", id).Scan(&n)
			})
		})
		db.awaitBlocked(id)
		require.NoError(t, raiser.Commit(t.Context()))
		require.NoError(t, read())
		require.Equal(t, 7, n)
	})
}

// The function keeps to itself that entering has failed, and InTx tells it all the
// same, so that the transaction can be run again.
func TestS25_DeferredSerializationFailureThatIsSwallowed(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, pgguard.WithDeferredBegin())
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		resource := string(level)
		aCtx, _ := db.raised(resource, 33, "A")
		raiser, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = raiser.Exec(t.Context(), "select fencing.raise($1, 34, 'n', 'B')", resource)
		require.NoError(t, err)
		own := errors.New("the function's own")
		stale := background(t, func() error {
			return db.guard.InTxOptions(aCtx, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, _ = tx.Exec(aCtx, "insert into item values ($1, 1)", resource)
				return own
			})
		})
		db.awaitBlocked(resource)
		require.NoError(t, raiser.Commit(t.Context()))
		err = stale()
		require.True(t, pgguard.Retryable(err), "%v", err)
		require.ErrorIs(t, err, own)
	}
	requireIdle(t, db.pool)
}

func TestRowsOfACarriedQuery(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		id := unique("i")
		const sql = "insert into item select $1 || x, x from generate_series(1, 3) x returning stock"

		// Closed early, read to the end, and closed twice: the transaction goes on.
		require.NoError(t, db.guard.InTx(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, sql, id)
			require.NoError(t, err)
			require.True(t, rows.Next())
			rows.Close()
			rows.Close()
			require.NoError(t, rows.Err())
			require.Equal(t, "INSERT 0 3", rows.CommandTag().String())
			require.NotNil(t, rows.Conn())
			_, err = tx.Exec(ctx, "select $1::int", 1)
			return err
		}))
		require.Equal(t, 3, one[int](db, "select count(*) from item where id like $1 || '%'", id))

		// Never closed: it cannot be committed, nor is the connection fit for another.
		for name, leave := range map[string]func(pgx.Tx){
			"Query":    func(tx pgx.Tx) { _, _ = tx.Query(ctx, sql, unique("never")) },
			"QueryRow": func(tx pgx.Tx) { _ = tx.QueryRow(ctx, sql, unique("never")) },
			"SendBatch": func(tx pgx.Tx) {
				b := &pgx.Batch{}
				b.Queue(sql, unique("never"))
				_ = tx.SendBatch(ctx, b)
			},
		} {
			err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
				leave(tx)
				_, err := tx.Exec(ctx, "select $1::int", 1)
				require.ErrorContains(t, err, "conn busy", name)
				return nil
			})
			require.ErrorContains(t, err, "not sent, the transaction was rolled back, nothing was written", name)
			require.ErrorContains(t, err, "conn busy", name)
			boom := errors.New("boom")
			require.Equal(t, boom, db.guard.InTx(ctx, func(tx pgx.Tx) error { leave(tx); return boom }))
			require.PanicsWithValue(t, "boom", func() {
				_ = db.guard.InTx(ctx, func(tx pgx.Tx) error { leave(tx); panic("boom") })
			})
		}
		require.Panics(t, func() {
			_ = db.guard.InTx(ctx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql, unique("never")).Scan(panicker{}) })
		})
		require.Zero(t, one[int](db, "select count(*) from item where id like 'never%'"))
		require.NoError(t, db.guard.InTx(ctx, inserts(ctx, unique("good"))))
		db.await("select count(*) = 0"+gateLocks, resource) // the server may see late that a client is gone
		requireIdle(t, db.pool)
	})
}

func TestDeferredTransactionWhoseContextOrConnectionDies(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		mode := db.pool.Config().ConnConfig.DefaultQueryExecMode
		pool := newPool(t, db.url, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = mode
			c.MaxConns = 1
		})
		g := newGuard(t, pool, pgguard.WithDeferredBegin())
		resource := unique("r")
		ctx, _ := db.raised(resource, 1, "A")
		works := func() {
			t.Helper()
			id := unique("good")
			require.NoError(t, g.InTx(ctx, inserts(ctx, id)))
			require.Equal(t, 100, db.stock(id))
			requireIdle(t, pool)
		}
		works()
		dead, cancel := context.WithCancel(ctx)
		cancel()
		lost := errors.New("the lease was lost")

		// A statement on a dead context is not sent, and the transaction goes on.
		id := unique("i")
		require.NoError(t, g.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(dead, "insert into item values ($1, 0)", id)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, tx.QueryRow(dead, "select 1").Scan(nil), context.Canceled)
			b := &pgx.Batch{}
			b.Queue("select 1")
			require.ErrorIs(t, tx.SendBatch(dead, b).Close(), context.Canceled)
			return inserts(ctx, id)(tx)
		}))
		require.Equal(t, 100, db.stock(id))
		require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "it cost no connection")

		// The context ends before the first statement.
		dying, lose := context.WithCancelCause(ctx)
		err := g.InTx(dying, func(tx pgx.Tx) error { lose(lost); return inserts(dying, "never")(tx) })
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, lost)
		dying, lose = context.WithCancelCause(ctx)
		err = g.InTx(dying, func(tx pgx.Tx) error { lose(lost); return nil })
		require.ErrorIs(t, err, lost)
		require.ErrorContains(t, err, "rolled back")
		works()

		// It ends while the first statement runs, or while that waits to enter.
		for name, sql := range map[string]string{"runs": "insert into item select 'never', 1 from pg_sleep($1)", "waits": "insert into item values ('never', $1)"} {
			wait := "select count(*) > 0 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
			args, release := []any{}, func() {}
			if name == "waits" {
				raiser, err := db.pool.Begin(ctx)
				require.NoError(t, err)
				_, err = raiser.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended($1, 5070437))", resource)
				require.NoError(t, err)
				release = func() { require.NoError(t, raiser.Rollback(ctx)) }
				wait, args = "select count(*) > 0"+gateLocks+" and not l.granted", []any{resource}
			}
			dying, lose := context.WithCancelCause(ctx)
			result := background(t, func() error {
				return g.InTx(dying, func(tx pgx.Tx) error {
					_, err := tx.Exec(dying, sql, 60)
					if err == nil {
						return errors.New("it ran to its end")
					}
					_, later := tx.Exec(ctx, "insert into item values ($1, 1)", "never")
					if later == nil {
						return errors.New("another statement ran")
					}
					return err
				})
			})
			db.await(wait, args...)
			lose(lost)
			err := result()
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, guard.ErrCommitUnknown, name)
			release()
			works()
		}

		// The connection dies before the first statement.
		for _, returns := range []error{nil, lost} {
			err = g.InTx(ctx, func(tx pgx.Tx) error {
				db.must("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
				err := inserts(ctx, "never")(tx)
				if mode == pgx.QueryExecModeDescribeExec {
					require.NoError(t, err, "it is noticed before BEGIN is sent, and another connection taken")
					return lost
				}
				require.Error(t, err)
				require.Error(t, inserts(ctx, "never")(tx))
				return returns
			})
			require.Error(t, err)
			require.NotErrorIs(t, err, guard.ErrCommitUnknown)
			if returns != nil {
				require.ErrorIs(t, err, returns)
			}
			db.pool.Reset()
			works()
		}
		require.Zero(t, one[int](db, "select count(*) from item where id = 'never'"))
	})
}

func TestS23_LostReplyOfACarriedStatement(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	db.deferred = true
	ctx, _ := db.raised("r", 1, "A")
	p := newProxy(t, db.url)
	g := db.behindProxy(t, p, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	for _, f := range []fault{loseReply, loseRequest} {
		p.failOn("insert into item", f, nil)
		err := g.InTx(ctx, inserts(ctx, "x"))
		require.Error(t, err)
		require.NotErrorIs(t, err, guard.ErrCommitUnknown, "without COMMIT nothing is written")
		db.await("select count(*) = 0"+gateLocks, "r")
		require.Zero(t, one[int](db, "select count(*) from item"))
	}
	require.Equal(t, 2, p.faults())
	require.NoError(t, g.InTx(ctx, inserts(ctx, "x")))
}

func TestDeferredTransactionThatIsLeftBeforeItsFirstStatement(t *testing.T) {
	t.Parallel()
	db := newDatabase(t, pgguard.WithDeferredBegin())
	ctx, _ := db.raised("r", 1, "A")
	boom := errors.New("boom")
	require.Equal(t, boom, db.guard.InTx(ctx, func(pgx.Tx) error { return boom }))
	require.PanicsWithValue(t, "boom", func() { _ = db.guard.InTx(ctx, func(pgx.Tx) error { panic("boom") }) })
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = db.guard.InTx(ctx, func(pgx.Tx) error { runtime.Goexit(); return nil })
	}()
	<-left
	// An argument of the caller's that panics when it is encoded.
	require.PanicsWithValue(t, "a valuer of the caller", func() {
		_ = db.guard.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into item values ($1, 1)", valuer{})
			return err
		})
	})
	require.NoError(t, db.guard.InTx(ctx, inserts(ctx, "good")))
	require.Equal(t, []string{"good"}, one[[]string](db, "select array_agg(id) from item"))
	require.NoError(t, guardOnly(db, "r"))
}
