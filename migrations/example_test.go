package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
)

// Every process may call Up when it starts: the first one installs the schema.
func ExampleUp() {
	withPool("version 5 <nil>", func(ctx context.Context, pool *pgxpool.Pool) {
		if err := migrations.Up(ctx, pool); err != nil {
			fmt.Println(err)
			return
		}
		version, err := migrations.Version(ctx, pool)
		fmt.Println("version", version, err)
	})
	// Output: version 5 <nil>
}

// Down ends fencing in a database: every fence is dropped.
func ExampleDown() {
	withPool("version 0 <nil>", func(ctx context.Context, pool *pgxpool.Pool) {
		if err := migrations.Up(ctx, pool); err != nil {
			fmt.Println(err)
			return
		}
		err := migrations.Down(ctx, pool)
		if errors.Is(err, migrations.ErrProtected) {
			fmt.Println("take the protection off the tables first:", err)
			return
		}
		version, _ := migrations.Version(ctx, pool)
		fmt.Println("version", version, err)
	})
	// Output: version 0 <nil>
}

// Any driver of database/sql will do.
func ExampleUpDB() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // each connection has its own database in memory
	ctx := context.Background()
	if err := migrations.UpDB(ctx, db, "sqlite"); err != nil {
		fmt.Println(err)
		return
	}
	version, err := migrations.VersionDB(ctx, db, "sqlite")
	fmt.Println("version", version, err)
	// Output: version 1 <nil>
}

func ExampleProtectFor() {
	up, down, err := migrations.ProtectFor("mysql", "shop.inventory", migrations.ProtectOptions{})
	fmt.Print(up, down, err)
	// Output:
	// ALTER TABLE `shop`.`inventory` ADD COLUMN `fence_token` bigint NOT NULL DEFAULT 0;
	// ALTER TABLE `shop`.`inventory` DROP COLUMN `fence_token`;
	// <nil>
}

func ExampleRenderFor() {
	files, err := migrations.RenderFor("mysql", migrations.GolangMigrate, migrations.StartAt(5))
	for _, f := range files {
		fmt.Println(f.Name)
	}
	fmt.Println(err)
	// Output:
	// 0005_fence.up.sql
	// 0005_fence.down.sql
	// <nil>
}

// A row of inventory needs the fence of its article.
func ExampleProtect() {
	up, down, err := migrations.Protect("app.inventory", migrations.ProtectOptions{Trigger: true, Resource: "'inventory:' || sku"})
	if err != nil {
		fmt.Println(err)
		return
	}
	const insert = "CREATE OR REPLACE TRIGGER fencing_insert"
	trigger, _, _ := strings.Cut(up[strings.Index(up, insert):], "\n\n")
	fmt.Println(trigger)
	fmt.Println(strings.Contains(down, "ALTER TABLE app.inventory DROP COLUMN fence_token;"))
	// Output:
	// CREATE OR REPLACE TRIGGER fencing_insert AFTER INSERT ON app.inventory FOR EACH ROW
	//     WHEN ((strpos(current_setting('fencing.held', true), E'\n' || replace(('inventory:' || NEW.sku)::text COLLATE "C", E'\n', E'\n\n') || E'\n') > 0) IS NOT TRUE)
	//     EXECUTE FUNCTION fencing.refuse_write('''inventory:'' || sku');
	// true
}

// The schema becomes part of a project's own migrations.
func ExampleRender() {
	files, err := migrations.Render(migrations.Goose, migrations.StartAt(20_261_201_090_000))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range files {
		firstLine, _, _ := strings.Cut(f.Content, "\n")
		fmt.Println(f.Name, firstLine)
	}
	// Output:
	// 20261201090000_fence.sql -- +goose Up
	// 20261201090001_sequence.sql -- +goose Up
	// 20261201090002_operation.sql -- +goose Up
	// 20261201090003_lease.sql -- +goose Up
	// 20261201090004_rebase.sql -- +goose Up
}

// The protection of a table goes into the same folder.
func ExampleRenderChanges() {
	up, down, err := migrations.Protect("inventory", migrations.ProtectOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	files, err := migrations.RenderChanges(migrations.GolangMigrate, migrations.Change{Number: 12, Name: "protect_inventory", Up: up, Down: down})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range files {
		fmt.Println(f.Name)
	}
	// Output:
	// 0012_protect_inventory.up.sql
	// 0012_protect_inventory.down.sql
}

// withPool runs an example on a fresh database. An example cannot be skipped:
// where a test would be, for want of a server, it prints what it would have.
func withPool(otherwise string, fn func(ctx context.Context, pool *pgxpool.Pool)) {
	tb := &exampleTB{}
	defer func() {
		if tb.skipped {
			_ = recover() // the panic of Skipf
			fmt.Println(otherwise)
		}
		for _, f := range tb.cleanups {
			f()
		}
	}()
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, servertest.Postgres(tb))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	fn(ctx, pool)
}

// An exampleTB is as much of a test as servertest needs.
type exampleTB struct {
	testing.TB
	cleanups []func()
	skipped  bool
}

func (e *exampleTB) Helper()                           {}
func (e *exampleTB) Context() context.Context          { return context.Background() }
func (e *exampleTB) Cleanup(f func())                  { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (e *exampleTB) Skipf(format string, args ...any) {
	e.skipped = true
	panic(fmt.Sprintf(format, args...))
}
