package stack

import (
	"context"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A Redis is a Redis server.
type Redis struct{ server }

// SharedRedis returns the server that the tests share, for those that do not break
// it. Isolate tests from each other by a prefix of the keys.
func SharedRedis(t testing.TB) *Redis {
	t.Helper()
	need(t)
	return &Redis{server{t, servers.redis}}
}

// NewRedis starts a server of its own, with further arguments of redis-server. It
// writes no files by itself.
func NewRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return &Redis{own(t, func(ctx context.Context) (machine, error) { return servers.startRedis(ctx, args) })}
}

// URLOf returns the URL of a Redis at an address, such as that of a link.
func URLOf(addr string) string { return "redis://" + addr + "/0" }

// Client returns a client of the server, past every link.
func (r *Redis) Client() *redis.Client { return newClient(r, r.Addr()) }

func newClient(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A Replica is a Redis server that follows another one.
type Replica struct {
	*Redis
	wire wire
}

// Replica starts a replica and waits until it follows.
func (r *Redis) Replica() *Replica {
	r.Helper()
	// The default makes a new replica wait for others for five seconds.
	require.NoError(r, r.Client().ConfigSet(r.Context(), "repl-diskless-sync-delay", "0").Err())
	replica := NewRedis(r.TB)
	w, err := servers.wire(r.Context(), r.machine, replica.machine)
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, w.close()) })
	host, port, err := net.SplitHostPort(w.master())
	require.NoError(r, err)
	client := replica.Client()
	require.NoError(r, client.ReplicaOf(r.Context(), host, port).Err())
	require.Eventually(r, func() bool { return says(client, "master_link_status:up") }, callBound, 5*time.Millisecond, "the replica follows")
	return &Replica{replica, w}
}

// AwaitSame waits until key has the same value on the replica as on its master.
func (r *Replica) AwaitSame(master *Redis, key string) {
	r.Helper()
	from, to := master.Client(), r.Client()
	require.Eventually(r, func() bool {
		want, err := from.Get(context.Background(), key).Result()
		got, err2 := to.Get(context.Background(), key).Result()
		return err == nil && err2 == nil && want == got
	}, callBound, 5*time.Millisecond, "%s on the replica", key)
}

// CutLink stops what the master sends from reaching the replica. Neither is told.
func (r *Replica) CutLink() {
	r.Helper()
	require.NoError(r, r.wire.cut())
}

// Promote makes the replica a master with what has reached it.
func (r *Replica) Promote() {
	r.Helper()
	client := r.Client()
	require.NoError(r, client.ReplicaOf(r.Context(), "NO", "ONE").Err())
	require.Eventually(r, func() bool { return says(client, "role:master") }, callBound, 5*time.Millisecond)
}

func says(c *redis.Client, line string) bool {
	info, err := c.Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(info, line)
}

// redisAnswers looks at the port first: the client logs every failure to connect.
func redisAnswers(ctx context.Context, m machine) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", m.Addr())
	if err != nil {
		return err
	}
	_ = c.Close() // after a probe there is nothing to lose
	_, err = askRedis(ctx, m)
	return err
}

var redisVersion = regexp.MustCompile(`(?m)^redis_version:([0-9.]+)`)

func askRedis(ctx context.Context, m machine) (version string, err error) {
	c := redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	defer func() { _ = c.Close() }() // after a probe there is nothing to lose
	if err := c.Ping(ctx).Err(); err != nil {
		return "", err
	}
	info, err := c.Info(ctx, "server").Result()
	if found := redisVersion.FindStringSubmatch(info); found != nil {
		version = found[1]
	}
	return version, err
}
