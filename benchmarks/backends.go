package main

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/filelock"
	"github.com/go-fencing/fencing/lock/memlock"
	"github.com/go-fencing/fencing/lock/pglock"
	"github.com/go-fencing/fencing/lock/redislock"
	"github.com/go-fencing/fencing/migrations"
)

// locked is the engine of our locker on b; close ends what b stands on.
func locked(b lock.Backend, end func(), opts ...lock.Option) (engine, error) {
	l, err := lock.New(b, append([]lock.Option{lock.WithTTL(ttl)}, opts...)...)
	if err != nil {
		end()
		return engine{}, err
	}
	return engine{
		lock: func(ctx context.Context, resource string) (func() error, error) {
			s, err := l.Acquire(ctx, resource)
			if err != nil {
				return nil, err
			}
			return func() error { return s.Release(ctx) }, nil
		},
		close: func() { _ = l.Close(); end() },
	}, nil
}

func openOurs(url string, opts ...lock.Option) (engine, error) {
	rdb, err := client(url)
	if err != nil {
		return engine{}, err
	}
	b, err := redislock.New(rdb)
	if err != nil {
		return engine{}, err
	}
	return locked(b, func() { _ = rdb.Close() }, opts...)
}

func openMemory(string) (engine, error) { return locked(memlock.New(), func() {}) }

func openFiles(string) (engine, error) {
	dir, err := os.MkdirTemp("", "fencing-bench-")
	if err != nil {
		return engine{}, err
	}
	b, err := filelock.New(dir)
	if err != nil {
		return engine{}, err
	}
	return locked(b, func() { _ = os.RemoveAll(dir) })
}

// openPostgres starts a private server, with commits that wait for the disk.
func openPostgres(string) (engine, error) {
	ctx := context.Background()
	server, err := localserver.StartPostgres(ctx, localserver.PostgresOptions{})
	if err != nil {
		return engine{}, err
	}
	stop := func() { _ = server.Stop() }
	pool, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		stop()
		return engine{}, err
	}
	end := func() { pool.Close(); stop() }
	if err := migrations.Up(ctx, pool); err != nil {
		end()
		return engine{}, err
	}
	b, err := pglock.New(pool)
	if err != nil {
		end()
		return engine{}, err
	}
	return locked(b, end)
}
