package pgguard_test

import (
	"context"
	"database/sql/driver"
	"math"

	"github.com/jackc/pgx/v5"

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
