package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

func openExample(ctx context.Context) *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	if err := migrations.UpDB(ctx, db, sqlguard.SQLite); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE stock (sku text PRIMARY KEY, n int); INSERT INTO stock VALUES ('sku-42', 10)"); err != nil {
		log.Fatal(err)
	}
	return db
}

func ExampleGuard_InTx() {
	ctx := context.Background()
	db := openExample(ctx)
	defer func() { _ = db.Close() }()
	g, err := sqlguard.New(db, sqlguard.SQLite)
	if err != nil {
		log.Fatal(err)
	}
	// A locker that is given the guard raises every fence by itself, and its lease
	// has this context.
	holder := func(token guard.Token, nonce string) context.Context {
		f := guard.Fence{Resource: "inventory:sku-42", Token: token, Nonce: nonce}
		if err := g.Raise(ctx, f); err != nil {
			log.Fatal(err)
		}
		return guard.NewContext(ctx, f)
	}
	sell := func(ctx context.Context) error {
		return g.InTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE sku = 'sku-42'")
			return err
		})
	}
	first := holder(33, "a")
	fmt.Println(sell(first))
	second := holder(34, "b")
	fmt.Println(errors.Is(sell(first), guard.ErrStale))
	fmt.Println(sell(second))
	// Output:
	// <nil>
	// true
	// <nil>
}

func ExampleEnter() {
	ctx := context.Background()
	db := openExample(ctx)
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	err = sqlguard.Enter(ctx, sqlguard.SQLite, tx, guard.Fence{Resource: "inventory:sku-42", Token: 1, Nonce: "a"})
	fmt.Println(errors.Is(err, guard.ErrNotRaised))
	// Output: true
}
