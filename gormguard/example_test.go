package gormguard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	sqlite "github.com/libtnb/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

// A Product is written under the lock of its SKU.
type Product struct {
	SKU   string `gorm:"primaryKey"`
	Stock int
}

func (p Product) FenceResource() string { return "product:" + p.SKU }

// openExample opens a guarded database, and returns it with a context under whose
// fence a product may be written, as a lease has it.
func openExample() (db *gorm.DB, guarded *gormguard.Plugin, held context.Context, done func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	db, err = gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := errors.Join(migrations.UpDB(ctx, pool, sqlguard.SQLite), db.AutoMigrate(&Product{})); err != nil {
		log.Fatal(err)
	}
	guarded = gormguard.New(gormguard.WithModels(&Product{}))
	if err := db.Use(guarded); err != nil {
		log.Fatal(err)
	}
	f := guard.Fence{Resource: "product:pen", Token: 1, Nonce: "a", Holder: "A"}
	if err := guarded.Raise(ctx, f); err != nil { // the locker does that: lock.WithGuards(guarded)
		log.Fatal(err)
	}
	return db, guarded, guard.NewContext(ctx, f), func() {
		_ = pool.Close()
		_ = os.RemoveAll(dir)
	}
}

func ExampleNew() {
	db, guarded, held, done := openExample()
	defer done()
	write := func(ctx context.Context) error { return db.WithContext(ctx).Save(&Product{SKU: "pen", Stock: 3}).Error }

	fmt.Println("no fence:", errors.Is(write(context.Background()), guard.ErrNoFence))
	fmt.Println("in force:", write(held))
	later := guard.Fence{Resource: "product:pen", Token: 2, Nonce: "b", Holder: "B"}
	if err := guarded.Raise(context.Background(), later); err != nil {
		log.Fatal(err)
	}
	fmt.Println("too late:", errors.Is(write(held), guard.ErrStale))
	fmt.Println("raw SQL:", errors.Is(db.WithContext(held).Exec("UPDATE products SET stock = 0").Error, guard.ErrStale))
	// Output:
	// no fence: true
	// in force: <nil>
	// too late: true
	// raw SQL: true
}

func ExampleEnter() {
	db, _, held, done := openExample()
	defer done()
	err := db.WithContext(held).Transaction(func(tx *gorm.DB) error {
		if err := gormguard.Enter(tx); err != nil { // before the first read
			return err
		}
		p := Product{SKU: "pen"}
		if err := tx.FirstOrInit(&p, "sku = ?", p.SKU).Error; err != nil {
			return err
		}
		p.Stock++
		return tx.Save(&p).Error
	})
	fmt.Println(err)
	// Output: <nil>
}

// A Counter has the version column of ModeRow.
type Counter struct {
	ID    int64
	Value int
	Token int64 `gorm:"fence;not null;default:0"`
}

func ExampleWithMode() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "counters.db")), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(db.AutoMigrate(&Counter{}),
		db.Use(gormguard.New(gormguard.WithModels(&Counter{}), gormguard.WithMode(gormguard.ModeRow)))); err != nil {
		log.Fatal(err)
	}
	write := func(token guard.Token) error {
		held := guard.Fence{Resource: "counter", Token: token, Nonce: "a", Holder: "A"} // a lease's context carries it
		return db.WithContext(guard.NewContext(context.Background(), held)).Save(&Counter{ID: 1, Value: int(token)}).Error
	}
	fmt.Println(write(2))
	fmt.Println("too late:", errors.Is(write(1), guard.ErrStale))
	// Output:
	// <nil>
	// too late: true
}

func ExampleUnguarded() {
	db, _, _, done := openExample()
	defer done()
	// Nobody holds the lock while the service is down.
	err := gormguard.Unguarded(db, "stocktaking").Exec("UPDATE products SET stock = 0").Error
	fmt.Println(err)
	// Output: <nil>
}
