package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/internal/rediskeys"
)

// redisFlags are those of the commands that look at locks in Redis.
type redisFlags struct{ scheme rediskeys.Scheme }

func (f *redisFlags) add(a *app, cmd *cobra.Command) {
	f.scheme = rediskeys.Default()
	cmd.Flags().Var(&a.redis, "redis", "`URL` of Redis, or of one node of a Cluster (default $FENCING_REDIS_URL, then $REDIS_URL)")
	cmd.Flags().StringVar(&f.scheme.Prefix, "prefix", f.scheme.Prefix, "first part of every key, as redislock.WithPrefix has it")
	cmd.Flags().IntVar(&f.scheme.Shards, "shards", f.scheme.Shards, "number of counters, as redislock.WithShards has it")
}

func (f *redisFlags) check() error {
	if err := f.scheme.Validate(); err != nil {
		return fmt.Errorf("--prefix, --shards: %w", err)
	}
	return nil
}

// needServer is an error if neither server is named.
func (a *app) needServer(command string) error {
	if a.postgresSetting().Value == "" && a.redisSetting().Value == "" {
		return fmt.Errorf("%s: no server to look at; name one with --postgres or --redis, or in FENCING_POSTGRES_URL, DATABASE_URL, FENCING_REDIS_URL or REDIS_URL", command)
	}
	return nil
}

// A keyspace is a Redis server, or the masters of a Cluster.
type keyspace struct {
	client  redis.UniversalClient // lock/redislock asks what it is, so it is not wrapped
	address *target.Redis
	masters []*redis.Client
}

// openRedis finds out by itself whether the server is part of a Cluster.
func (a *app) openRedis(ctx context.Context) (*keyspace, error) {
	address, err := target.ParseRedis(a.redisSetting())
	if err != nil {
		return nil, err
	}
	address.Options.ContextTimeoutEnabled = true
	single, err := address.Connect(ctx)
	if err != nil {
		return nil, err
	}
	k := &keyspace{client: single, address: address, masters: []*redis.Client{single}}
	if err := single.ClusterInfo(ctx).Err(); err != nil {
		return k, nil // "cluster support disabled"
	}
	_ = single.Close()
	o := address.Options
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, ContextTimeoutEnabled: true})
	k.client, k.masters = cluster, nil
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		k.masters = append(k.masters, master)
		return nil
	})
	if err != nil {
		_ = cluster.Close()
		return nil, address.Unusable(err)
	}
	return k, nil
}
