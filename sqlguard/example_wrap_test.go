package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

// A connector is what drivers offer under names such as mysql.NewConnector,
// stdlib.GetConnector and pq.NewConnector; for SQLite it is made here.
type sqliteFile string

func (f sqliteFile) Connect(context.Context) (driver.Conn, error) { return f.Driver().Open(string(f)) }
func (sqliteFile) Driver() driver.Driver                          { return &sqlite.Driver{} }

func ExampleWrap() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := sqliteFile(filepath.Join(dir, "stock.db"))

	plain := sql.OpenDB(file) // for what is not guarded, such as migrations
	defer func() { _ = plain.Close() }()
	if err := migrations.UpDB(ctx, plain, sqlguard.SQLite); err != nil {
		log.Fatal(err)
	}
	if _, err := plain.ExecContext(ctx, "CREATE TABLE stock (sku text PRIMARY KEY, n int)"); err != nil {
		log.Fatal(err)
	}

	db := sql.OpenDB(sqlguard.Wrap(file, sqlguard.SQLite)) // hand this one to sqlx, bun, ent, sqlc or GORM
	defer func() { _ = db.Close() }()
	g, err := sqlguard.New(db, sqlguard.SQLite)
	if err != nil {
		log.Fatal(err)
	}
	f, err := g.Issue(ctx, "inventory:sku-42", "nonce", "worker-1")
	if err != nil {
		log.Fatal(err)
	}
	const insert = "INSERT INTO stock VALUES ('sku-42', 10)"
	_, err = db.ExecContext(ctx, insert)
	fmt.Println(errors.Is(err, guard.ErrNoFence))
	_, err = db.ExecContext(guard.NewContext(ctx, f), insert)
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
