package pgguard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// What a program has at hand when it writes: a guard that it made at its start,
// and the lease of a locker that was given the guard with lock.WithGuards.
var (
	g     *pgguard.Guard
	lease interface{ Context() context.Context }
)

// TestExamples runs the examples that need a server.
func TestExamples(t *testing.T) {
	db := newDatabase(t)
	db.must("insert into item values ('sku-42', 11)")
	ctx, _ := db.raised("inventory:sku-42", 1, "A")
	g, lease = db.guard, contextHolder{ctx}
	t.Setenv("DATABASE_URL", db.url)
	ExampleNew()
	ExampleGuard_InTx()
	ExampleGuard_InTxOptions()
	ExampleGuard_Begin()
	ExampleGuard_BeginTx()
	ExampleGuard_Exec()
	ExampleGuard_QueryRow()
	ExampleGuard_Query()
	ExampleGuard_SendBatch()
	ExampleGuard_CopyFrom()
	ExampleGuard_Once()
	ExampleEnter()
	ExampleGuard_Enter()
	ExampleUpdateRow()
	ExampleExpr()
	ExampleRetryable()
	require.Equal(t, 1, db.stock("sku-42"))
	ExampleGuard_Issue()
	ExampleGuard_Raise()
}

type contextHolder struct{ ctx context.Context }

func (h contextHolder) Context() context.Context { return h.ctx }

func ExampleNew() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	g, err := pgguard.New(pool,
		pgguard.WithLockTimeout(4*time.Second), // how long a new holder waits for transactions of the old one
		pgguard.WithIdleTimeout(2*time.Second), // how long such a transaction may sit idle
		pgguard.WithDeferredBegin(),            // a round trip fewer, where InTx's functions do nothing outside of the database first
		pgguard.WithObserver(func(e guard.Event) { log.Println(e.Kind, e.Fence, e.Took, e.Err) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	_ = g // give it to the locker with lock.WithGuards(g), and to the repositories
}

func ExampleGuard_InTx() {
	ctx := lease.Context()
	err := g.InTx(ctx, func(tx pgx.Tx) error {
		var stock int
		if err := tx.QueryRow(ctx, "select stock from item where id = $1", "sku-42").Scan(&stock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update item set stock = $1 where id = $2", stock-1, "sku-42")
		return err
	})
	switch stale, ok := errors.AsType[*guard.StaleError](err); {
	case ok:
		fmt.Printf("too late, %s has the lock since %v\n", stale.Current.Holder, stale.Since)
	case err != nil:
		log.Fatal(err)
	}
}

func ExampleGuard_InTxOptions() {
	ctx := lease.Context()
	err := g.InTxOptions(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var total int // read by the holder of the lock, or not at all
		return tx.QueryRow(ctx, "select sum(stock) from item").Scan(&total)
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleGuard_Begin() {
	ctx := lease.Context()
	err := pgx.BeginFunc(ctx, g, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update item set stock = stock - 1 where id = $1", "sku-42")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleGuard_BeginTx() {
	ctx := lease.Context()
	tx, err := g.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "update item set stock = stock - 1 where id = $1", "sku-42"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExampleGuard_Exec() {
	// A guard is the DBTX that sqlc's code takes: queries := db.New(g)
	tag, err := g.Exec(lease.Context(), "update item set stock = stock - 1 where id = $1", "sku-42")
	if err != nil {
		log.Fatal(err)
	}
	if tag.RowsAffected() == 0 {
		log.Fatal("there is no such item")
	}
}

func ExampleGuard_QueryRow() {
	var left int
	err := g.QueryRow(lease.Context(), "update item set stock = stock - 1 where id = $1 returning stock", "sku-42").Scan(&left)
	if err != nil {
		log.Fatal(err) // also if the update could not be committed
	}
}

func ExampleGuard_Query() {
	rows, err := g.Query(lease.Context(), "select id from item where stock < $1", 5)
	if err != nil {
		log.Fatal(err)
	}
	scarce, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		log.Fatal(err)
	}
	_ = scarce
}

func ExampleGuard_SendBatch() {
	b := &pgx.Batch{}
	b.Queue("update item set stock = stock - 1 where id = $1", "sku-42")
	b.Queue("insert into kid values ($1, $2)", "order-1", "sku-42")
	if err := g.SendBatch(lease.Context(), b).Close(); err != nil { // both or neither
		log.Fatal(err)
	}
}

func ExampleGuard_CopyFrom() {
	rows := [][]any{{"order-2", "sku-42"}, {"order-3", "sku-42"}}
	_, err := g.CopyFrom(lease.Context(), pgx.Identifier{"kid"}, []string{"id", "item"}, pgx.CopyFromRows(rows))
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleGuard_Once() {
	ctx := lease.Context()
	sell := func() error {
		return g.Once(ctx, "order:4711", func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update item set stock = stock - 1 where id = $1", "sku-42")
			return err
		})
	}
	for range 2 { // submitted twice, applied once
		if err := sell(); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleEnter() {
	ctx := lease.Context()
	var pool interface { // your own pool, or transaction manager
		Begin(ctx context.Context) (pgx.Tx, error)
	} = g
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := pgguard.Enter(ctx, tx); err != nil { // before anything else
			return err
		}
		_, err := tx.Exec(ctx, "update item set stock = stock - 1 where id = $1", "sku-42")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleGuard_Enter() {
	ctx := lease.Context()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(ctx) // by a framework that knows nothing of fences
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	f, ok := guard.FromContext(ctx, "inventory:sku-42") // one fence out of several; without it, all of ctx
	if !ok {
		log.Fatal("this work is done under the lock of sku-42")
	}
	if err := g.Enter(ctx, tx, f); err != nil {
		log.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "insert into kid values ($1, $2)", "order-4", "sku-42"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExampleUpdateRow() {
	ctx := lease.Context()
	err := pgguard.UpdateRow(ctx, g, pgguard.RowUpdate{
		Table:    pgx.Identifier{"item"},
		Resource: "inventory:sku-42",
		Key:      map[string]any{"id": "sku-42"},
		Set:      map[string]any{"stock": pgguard.Expr("stock - ?", 1)},
		Filter:   pgguard.Expr("stock >= ?", 1),
	})
	switch {
	case errors.Is(err, guard.ErrStale):
		fmt.Println("a later holder has written this row")
	case errors.Is(err, pgguard.ErrFilter):
		fmt.Println("sold out")
	case errors.Is(err, pgx.ErrNoRows):
		fmt.Println("no such item")
	case err != nil:
		log.Fatal(err)
	}
}

func ExampleExpr() {
	ctx := lease.Context()
	err := pgguard.UpdateRow(ctx, g, pgguard.RowUpdate{
		Table:    pgx.Identifier{"item"},
		Resource: "inventory:sku-42",
		Key:      map[string]any{"id": "sku-42"},
		Set:      map[string]any{"stock": pgguard.Expr("greatest(stock - ?, ?)", 0, 1)},
		Filter:   pgguard.Expr("not '{\"sold out\": true}'::jsonb ?? ?", "discontinued"), // ?? is the operator ?
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleRetryable() {
	ctx := lease.Context()
	sell := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update item set stock = stock - 1 where id = $1", "sku-42")
		return err
	}
	var err error
	for range 5 { // each time the fence is entered again; ErrStale ends it at once
		err = g.InTxOptions(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}, sell)
		if !pgguard.Retryable(err) {
			break
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleGuard_Issue() {
	// Postgres as lock and sequencer in one: whoever came last may write.
	f, err := g.Issue(context.Background(), "nightly-report", "a random nonce", "worker-7")
	if err != nil {
		log.Fatal(err)
	}
	ctx := guard.NewContext(context.Background(), f)
	if _, err := g.Exec(ctx, "insert into item values ($1, 0)", "report"); err != nil {
		log.Fatal(err)
	}
}

func ExampleGuard_Raise() {
	// A locker does this before Acquire returns. By hand it is for a fence that
	// comes from elsewhere, such as a leader election.
	f := guard.Fence{Resource: "cluster-leader", Token: 17, Nonce: "a random nonce", Holder: "node-3"}
	if err := g.Raise(context.Background(), f); err != nil {
		log.Fatal(err)
	}
	ctx := guard.NewContext(context.Background(), f)
	_ = ctx // for everything that the leader writes
}
