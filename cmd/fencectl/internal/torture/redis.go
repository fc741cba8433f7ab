package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/faultlink"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
)

// A redisSide is the Redis of a run: the user's, or two private servers, one of
// which replicates the other.
type redisSide struct {
	url    string
	prefix string
	clocks bool
	says   string

	servers [2]*localserver.Redis // nil if it is the user's
	clients [2]*goredis.Client
	wire    *faultlink.Link // from the replica to its master

	mu     *sync.Mutex
	master int    // index of the one that is master now
	addr   string // for the links, if it is the user's
}

func openRedis(ctx context.Context, address *target.Redis, prefix string) (r redisSide, err error) {
	r = redisSide{prefix: prefix, mu: new(sync.Mutex)}
	if address != nil {
		r.url, r.addr, r.says = address.Value, address.Options.Addr, fmt.Sprintf("%s, keys %s:*", address, prefix)
		r.clients[0], err = address.Connect(ctx)
		return r, err
	}
	r.clocks = true
	for i := range r.servers {
		o := localserver.RedisOptions{OwnClock: r.clocks, Args: []string{"--repl-diskless-sync-delay", "0"}}
		r.servers[i], err = localserver.StartRedis(ctx, o)
		if i == 0 && r.clocks && err != nil { // no compiler, most likely
			r.clocks, o.OwnClock = false, false
			r.servers[i], err = localserver.StartRedis(ctx, o)
		}
		if err != nil {
			return r, errors.Join(err, r.close(ctx))
		}
		r.clients[i] = goredis.NewClient(&goredis.Options{Addr: r.servers[i].Addr(), DisableIdentity: true})
	}
	r.url, r.says = r.servers[0].URL(), "Redis, two private servers"
	if !r.clocks {
		r.says += " (their clocks cannot be set here)"
	}
	if r.wire, err = faultlink.New(r.servers[0].Addr()); err != nil {
		return r, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

func (r *redisSide) about() string { return r.says }
func (r *redisSide) own() bool     { return r.servers[0] != nil }

// target is where a new worker's link leads.
func (r *redisSide) target() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own() {
		return r.servers[r.master].Addr()
	}
	return r.addr
}

func (r *redisSide) now() (int, *goredis.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.master, r.clients[r.master]
}

// forget puts the counter of a resource back to before a token, and frees its lock.
func (r *redisSide) forget(ctx context.Context, prefix, resource string, token guard.Token) error {
	keys := rediskeys.Default()
	keys.Prefix = prefix
	_, rdb := r.now()
	if token == 0 {
		return rdb.Del(ctx, prefix+":"+resource).Err()
	}
	_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		p.Del(ctx, keys.Lock(resource))
		p.Set(ctx, keys.Counter(resource), int64(token)-1, 0)
		return nil
	})
	return err
}

// follow makes the other server a replica of the master that has everything.
func (r *redisSide) follow(ctx context.Context) error {
	master, rdb := r.now()
	other := r.clients[1-master]
	r.wire.Retarget(r.servers[master].Addr())
	host, port, err := net.SplitHostPort(r.wire.Addr())
	if err != nil {
		return err
	}
	if err := other.ReplicaOf(ctx, host, port).Err(); err != nil {
		return err
	}
	return until(ctx, 10*time.Second, func() error {
		if !says(ctx, other, "master_link_status:up") || !says(ctx, rdb, "connected_slaves:1") {
			return errors.New("the replica does not follow its master")
		}
		return nil
	})
}

// promote makes the other server a second master, with what has reached it.
func (r *redisSide) promote(ctx context.Context) (addr string, err error) {
	master, _ := r.now()
	err = r.clients[1-master].ReplicaOf(ctx, "NO", "ONE").Err()
	r.wire.Heal()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.master = 1 - master
	return r.servers[r.master].Addr(), err
}

// crash kills the master, which comes back with what it has saved.
func (r *redisSide) crash(ctx context.Context) error {
	master, _ := r.now()
	return errors.Join(r.servers[master].Kill(), r.servers[master].Restart(ctx))
}

func (r *redisSide) setClock(ahead time.Duration) error {
	return errors.Join(r.servers[0].SetClock(ahead), r.servers[1].SetClock(ahead))
}

func (r *redisSide) close(ctx context.Context) error {
	var errs []error
	if r.wire != nil {
		errs = append(errs, r.wire.Close())
	}
	if !r.own() && r.clients[0] != nil {
		if err := r.remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("the keys %s:* may be left in Redis: %w", r.prefix, err))
		}
	}
	for i := range r.servers {
		if r.clients[i] != nil {
			errs = append(errs, r.clients[i].Close())
		}
		if r.servers[i] != nil {
			errs = append(errs, r.servers[i].Stop())
		}
	}
	return errors.Join(errs...)
}

// remove deletes every key of the run.
func (r *redisSide) remove(ctx context.Context) error {
	keys := r.clients[0].Scan(ctx, 0, r.prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := r.clients[0].Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

func says(ctx context.Context, c *goredis.Client, line string) bool {
	info, err := c.Info(ctx, "replication").Result()
	return err == nil && strings.Contains(info, line)
}

// until waits until what succeeds, for at most bound; the error is its last one.
func until(ctx context.Context, bound time.Duration, what func() error) error {
	late := time.After(bound)
	for {
		err := what()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return fmt.Errorf("not within %s: %w", bound, err)
		}
	}
}
