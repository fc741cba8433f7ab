// Package servers finds the Postgres and the Redis of an example, or starts
// private ones, so that a reader can just run it. A service has its own way.
package servers

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/localserver"
)

// Servers are the URLs of Postgres and Redis.
type Servers struct{ Postgres, Redis string }

// Parse parses the command line, to which it adds the flags -postgres and -redis,
// and takes what they leave open from DATABASE_URL and REDIS_URL.
func Parse() Servers {
	var s Servers
	flag.StringVar(&s.Postgres, "postgres", "", "`URL` of Postgres (default $DATABASE_URL, else a private server)")
	flag.StringVar(&s.Redis, "redis", "", "`URL` of Redis (default $REDIS_URL, else one inside of this process)")
	flag.Parse()
	s.Postgres = cmp.Or(s.Postgres, os.Getenv("DATABASE_URL"))
	s.Redis = cmp.Or(s.Redis, os.Getenv("REDIS_URL"))
	return s
}

// Start starts a private server in place of each URL that is missing. The
// servers end with stop.
func (s *Servers) Start(ctx context.Context) (stop func() error, err error) {
	stop = func() error { return nil }
	if s.Postgres == "" {
		server, err := localserver.StartPostgres(ctx, localserver.PostgresOptions{})
		if err != nil {
			return nil, fmt.Errorf("no Postgres: name one with -postgres URL or DATABASE_URL: %w", err)
		}
		s.Postgres, stop = server.URL(""), server.Stop
	}
	if s.Redis == "" {
		addr, stopRedis, err := localserver.StartMiniredis()
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		stopPostgres := stop
		s.Redis, stop = "redis://"+addr, func() error {
			stopRedis()
			return stopPostgres()
		}
	}
	return stop, nil
}

// Connect connects to both, with schema as the search path. It keeps the parsers'
// errors to itself: they quote the URL, and a part of the password with it if that
// is what is malformed.
func (s *Servers) Connect(ctx context.Context, schema string) (*pgxpool.Pool, *redis.Client, error) {
	options, err := redis.ParseURL(s.Redis)
	if err != nil {
		return nil, nil, errors.New("the URL of Redis is not of the form redis://user:password@host:port/0")
	}
	config, err := pgxpool.ParseConfig(s.Postgres)
	if err != nil {
		return nil, nil, errors.New("the URL of Postgres is not of the form postgres://user:password@host:port/database")
	}
	config.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	return pool, redis.NewClient(options), nil
}
