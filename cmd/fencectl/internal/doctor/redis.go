package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/rediscluster"
)

// Redis looks at a server, or at the masters of a cluster, and compares the counters,
// which have these keys, with the heights of the database. With an error come the findings
// of what did answer; what the user may not see is no error.
func Redis(ctx context.Context, client redis.UniversalClient, nodes []*redis.Client, server string, counters []string, heights Heights) ([]Finding, error) {
	r := &redisServer{findings: findings{server: server}, client: client}
	var failures []error
	for _, node := range nodes {
		addr := node.Options().Addr
		switch err := r.node(ctx, node); {
		case redis.HasErrorPrefix(err, denied):
			r.unseen("server", fmt.Sprintf("%s: version, role, eviction, persistence: %v", addr, err), "allow this user the command info, or name another user")
		case err != nil:
			failures = append(failures, fmt.Errorf("%s: %w", addr, err))
		}
	}
	switch err := r.counters(ctx, counters, heights); {
	case redis.HasErrorPrefix(err, denied):
		r.unseen("counters", err.Error(), "allow this user the commands get and ttl, and the keys of the counters, or name another user")
	case err != nil:
		failures = append(failures, err)
	}
	return r.all, errors.Join(failures...)
}

// denied is how Redis answers a user who has not the right.
const denied = "NOPERM"

type redisServer struct {
	findings
	client redis.UniversalClient
}

// node looks at one server. INFO is allowed where CONFIG is not.
func (r *redisServer) node(ctx context.Context, node *redis.Client) error {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	addr := node.Options().Addr
	major, _, _ := strings.Cut(info["redis_version"], ".")
	version, _ := strconv.Atoi(major)
	switch {
	case version < 7:
		r.add(Fail, "server", fmt.Sprintf("%s: Redis %s", addr, info["redis_version"]), "lock/redislock needs Redis 7")
	case info["role"] != "master":
		r.add(Fail, "server", fmt.Sprintf("%s: Redis %s, a replica", addr, info["redis_version"]), "name the master, or use Sentinel: a replica takes no lock")
	default:
		r.ok("server", "%s: Redis %s, a master", addr, info["redis_version"])
	}
	policy := info["maxmemory_policy"]
	switch {
	case info["maxmemory"] == "0" || policy == "noeviction":
		r.ok("eviction", "%s: none", addr)
	case strings.HasPrefix(policy, "volatile"):
		r.add(Warn, "eviction", fmt.Sprintf("%s: maxmemory-policy is %s: a lock may be evicted while it is held", addr, policy), "set maxmemory-policy noeviction")
	default:
		r.add(Warn, "eviction", fmt.Sprintf("%s: maxmemory-policy is %s: locks and counters may be evicted; the fence still refuses, and each loss is repaired", addr, policy), "set maxmemory-policy noeviction")
	}
	if info["aof_enabled"] == "0" {
		r.add(Warn, "persistence", addr+": no append-only file: a restart forgets locks and counters since the last snapshot; the fence still refuses, and the counters are repaired", "set appendonly yes")
		return nil
	}
	r.ok("persistence", "%s: append-only file", addr)
	return nil
}

// counters looks for those that expire (S14), that are poisoned (S18), and that are
// behind the database (S13, S40).
func (r *redisServer) counters(ctx context.Context, keys []string, heights Heights) error {
	type counter struct {
		value *redis.StringCmd
		ttl   *redis.DurationCmd
	}
	read := map[string]counter{}
	rediscluster.Stamp(r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			read[key] = counter{p.Get(ctx, key), p.TTL(ctx, key)}
		}
		return nil
	}))
	var expiring, poisoned, behind []string
	there := 0
	for _, key := range keys {
		c := read[key]
		value, err := c.value.Int64()
		switch {
		case errors.Is(err, redis.Nil): // 0
		case errors.Is(err, strconv.ErrSyntax), errors.Is(err, strconv.ErrRange), redis.HasErrorPrefix(err, "WRONGTYPE"):
			poisoned = append(poisoned, key)
			continue
		case err != nil: // of this node
			return err
		default:
			there++
		}
		if err := c.ttl.Err(); err != nil {
			return err
		}
		if c.ttl.Val() >= time.Second {
			expiring = append(expiring, key)
		}
		h := heights[key]
		if value > nearTheEnd || h.Ceiling > 0 && value >= h.Ceiling-1 {
			poisoned = append(poisoned, key)
		}
		if value < h.Token {
			behind = append(behind, key)
		}
	}
	switch {
	case len(expiring) > 0:
		r.add(Fail, "counters", "with a TTL: "+some(expiring)+": each will be forgotten", "PERSIST them, and find out who set it")
	case len(poisoned) > 0:
		r.add(Fail, "counters", "no number, near the end of the integers, or where a rebase has given up the tokens: "+some(poisoned), "find out who wrote them, then run \"fencectl rebase RESOURCE\" for a resource of each")
	case len(behind) > 0 && there == 0:
		r.add(Warn, "counters", fmt.Sprintf("there is none, and the database has fences of %d: %s: --prefix or --shards is not that of the locks, or Redis has forgotten (a failover, FLUSHALL, an eviction, an old snapshot), or the tokens come from elsewhere", len(behind), some(behind)),
			"compare --prefix and --shards with WithPrefix and WithShards of redislock; if Redis has forgotten, nothing: the next acquisition of each is repaired from the database")
	case len(behind) > 0:
		r.add(Warn, "counters", fmt.Sprintf("%d are behind the database: %s: Redis has forgotten (a failover, FLUSHALL, an eviction, an old snapshot), or the tokens come from elsewhere", len(behind), some(behind)),
			"nothing: the next acquisition of each is repaired from the database")
	case heights == nil:
		r.ok("counters", "%d, none of which expires", there)
	default:
		r.ok("counters", "%d, none of which expires or is behind the database", there)
	}
	return nil
}

// some is a list that stays short.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
