package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/localserver"
)

// servers are the addresses of Postgres and Redis.
type servers struct{ postgres, redis string }

// start starts a private server in place of each address that is missing. The
// servers end with stop.
func (s *servers) start(ctx context.Context) (stop func() error, err error) {
	stop = func() error { return nil }
	if s.postgres == "" {
		server, err := localserver.StartPostgres(ctx, localserver.PostgresOptions{})
		if err != nil {
			return nil, fmt.Errorf("no Postgres: name one with -postgres URL or POSTGRES_URL: %w", err)
		}
		s.postgres, stop = server.URL(""), server.Stop
	}
	if s.redis == "" {
		server, err := miniredis.Run()
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		ctx, cancel := context.WithCancel(ctx)
		go letTimePass(ctx, server)
		stopPostgres := stop
		s.redis, stop = "redis://"+server.Addr(), func() error {
			cancel()
			server.Close()
			return stopPostgres()
		}
	}
	return stop, nil
}

// letTimePass moves the clock of a miniredis, which does not run by itself.
func letTimePass(ctx context.Context, server *miniredis.Miniredis) {
	clock := time.NewTicker(10 * time.Millisecond)
	defer clock.Stop()
	for last := time.Now(); ctx.Err() == nil; {
		now := <-clock.C
		server.FastForward(now.Sub(last))
		last = now
	}
}

// connect keeps the parsers' errors to itself: they quote the address, and a part
// of the password with it if that is what is malformed.
func (s *servers) connect(ctx context.Context, schema string) (*pgxpool.Pool, *redis.Client, error) {
	options, err := redis.ParseURL(s.redis)
	if err != nil {
		return nil, nil, errors.New("the address of Redis is not of the form redis://user:password@host:port/0")
	}
	config, err := pgxpool.ParseConfig(s.postgres)
	if err != nil {
		return nil, nil, errors.New("the address of Postgres is not of the form postgres://user:password@host:port/database")
	}
	config.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	return pool, redis.NewClient(options), nil
}
