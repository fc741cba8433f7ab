package localserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterSlots is the number of slots of every Redis Cluster.
const clusterSlots = 16384

// nodeTimeout is after how many milliseconds without an answer the others take a
// node for failed.
const nodeTimeout = "1500"

// RedisCluster is a private Redis Cluster of separate processes. The nodes are the
// masters and then their replicas, as they were at the start.
type RedisCluster struct{ Nodes []*Redis }

// StartRedisCluster starts a cluster with a number of masters, and a number of
// replicas for each. It returns when every node says that the cluster is well.
func StartRedisCluster(ctx context.Context, masters, replicas int, o RedisOptions) (*RedisCluster, error) {
	c := new(RedisCluster)
	for range masters * (1 + replicas) {
		bus, err := FreePort()
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		s, err := StartRedis(ctx, RedisOptions{Args: append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", nodeTimeout, "--cluster-port", strconv.Itoa(bus),
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
		}, o.Args...)})
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		c.Nodes = append(c.Nodes, s)
	}
	if err := c.join(ctx, masters); err != nil {
		return nil, errors.Join(fmt.Errorf("localserver: redis cluster: %w", err), c.Stop())
	}
	return c, nil
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// Stop ends every node.
func (c *RedisCluster) Stop() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Stop())
	}
	return errors.Join(errs...)
}

// join makes one cluster of the nodes.
func (c *RedisCluster) join(ctx context.Context, masters int) error {
	clients := make([]*redis.Client, len(c.Nodes))
	ids := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		clients[i] = redis.NewClient(&redis.Options{Addr: n.Addr(), DisableIdentity: true})
		defer closeQuietly(clients[i])
		var err error
		if ids[i], err = clients[i].ClusterMyID(ctx).Result(); err != nil {
			return err
		}
	}
	for i, rdb := range clients[:masters] {
		if err := rdb.ClusterAddSlotsRange(ctx, i*clusterSlots/masters, (i+1)*clusterSlots/masters-1).Err(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes[1:] {
		info, err := clients[0].Do(ctx, "cluster", "meet", "127.0.0.1", strconv.Itoa(n.port), busPort(n)).Text()
		if err != nil {
			return fmt.Errorf("meet: %s %w", info, err)
		}
	}
	for i := masters; i < len(clients); i++ {
		// Until it has heard of its master.
		err := wait(ctx, func() error { return clients[i].ClusterReplicate(ctx, ids[i%masters]).Err() })
		if err != nil {
			return err
		}
	}
	for i, rdb := range clients {
		err := wait(ctx, func() error {
			info, err := rdb.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(clients)))) {
				err = errors.New(info)
			}
			if err != nil || i < masters {
				return err
			}
			if info, err = rdb.Info(ctx, "replication").Result(); err == nil && !strings.Contains(info, "master_link_status:up") {
				err = errors.New(info)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// busPort is where a node listens to the others.
func busPort(n *Redis) string {
	for i, arg := range n.args {
		if arg == "--cluster-port" {
			return n.args[i+1]
		}
	}
	return ""
}

// wait calls ready until it succeeds or the time is over.
func wait(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
