package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/migrations"
)

type options struct {
	ttl       time.Duration
	credit    string
	unguarded bool
}

// open puts the service together.
func open(ctx context.Context, pool *pgxpool.Pool, rdb *redis.Client, o options) (*service, error) {
	if err := install(ctx, pool); err != nil {
		return nil, err
	}
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: stdlib.OpenDBFromPool(pool)}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	if err := db.AutoMigrate(&Article{}, &Order{}); err != nil {
		return nil, err
	}
	backend, err := redislock.New(rdb, redislock.WithPrefix("example-gormservice"))
	if err != nil {
		return nil, err
	}
	locking := []lock.Option{lock.WithTTL(o.ttl), lock.WithHolder(fmt.Sprintf("process %d", os.Getpid()))}
	if !o.unguarded {
		guarded := gormguard.New(gormguard.WithModels(&Article{}, &Order{}))
		if err := db.Use(guarded); err != nil { // no stale write passes from here on
			return nil, err
		}
		locking = append(locking, lock.WithGuards(guarded)) // every lock raises its fence in the database
	}
	locker, err := lock.New(backend, locking...)
	if err != nil {
		return nil, err
	}
	return &service{locker: locker, articles: repository{db}, credit: o.credit}, nil
}

func install(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS example_gormservice")
	return err
}
