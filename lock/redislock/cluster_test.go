package redislock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/locktest"
	"github.com/go-fencing/fencing/lock/redislock"
)

// soon is for what a cluster does within a few seconds on a machine that is idle.
const soon = time.Minute

func clusterClient(t *testing.T, c *localserver.RedisCluster) *redis.ClusterClient {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// A party is two lockers that share a cluster and guard one store.
type party struct {
	*testing.T
	first, second *lock.Locker
	store         *guard.Memory
	answers       answers // to the second
}

// answers has an entry for each command that was answered, up to some.
type answers chan struct{}

func (a answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		select {
		case a <- struct{}{}:
		default:
		}
		return err
	}
}

func (a answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func newParty(t *testing.T, open func() redis.UniversalClient, opts ...lock.Option) *party {
	t.Helper()
	p := &party{T: t, store: guard.NewMemory(), answers: make(answers, 1)}
	for _, l := range []**lock.Locker{&p.first, &p.second} {
		rdb := open()
		if l == &p.second {
			rdb.AddHook(p.answers)
		}
		b, err := redislock.New(rdb)
		require.NoError(t, err)
		*l, err = lock.New(b, append([]lock.Option{lock.WithGuards(p.store)}, opts...)...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = (*l).Close() })
	}
	return p
}

func (p *party) acquire(l *lock.Locker, resource string) *lock.Lease {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), soon)
	defer cancel()
	s, err := l.Acquire(ctx, resource)
	require.NoError(p, err)
	// Not this ctx, whose end would end the lease.
	detached, err := l.Join(p.Context(), s.Fence())
	require.NoError(p, err)
	require.NoError(p, s.Release(p.Context()))
	return detached
}

// wait lets the second locker wait for resource, and returns where it reports. Its
// first attempt has been refused by then: one that finds nobody fails at once.
func (p *party) wait(resource string) <-chan error {
	done := make(chan error, 1)
	select {
	case <-p.answers: // to what came before
	default:
	}
	go func() {
		ctx, cancel := context.WithTimeout(p.Context(), soon)
		defer cancel()
		s, err := p.second.Acquire(ctx, resource)
		if err == nil {
			err = s.Release(ctx)
		}
		done <- err
	}()
	select {
	case <-p.answers:
	case <-p.Context().Done():
	case <-time.After(soon):
		p.Error("the second locker has not asked")
	}
	return done
}

// usable checks that both lockers work.
func (p *party) usable(resource string) {
	p.Helper()
	var last guard.Token
	for _, l := range []*lock.Locker{p.first, p.second, p.first} {
		require.Eventually(p, func() bool {
			s, err := l.TryAcquire(p.Context(), resource)
			if err != nil {
				return false
			}
			require.Greater(p, s.Fence().Token, last)
			last = s.Fence().Token
			return s.Release(p.Context()) == nil
		}, soon, 20*time.Millisecond)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := servertest.NewRedisCluster(t, 3, 1)
	rdb := clusterClient(t, c)
	b, err := redislock.New(rdb)
	require.NoError(t, err)
	// Not parallel: the faults are those of one cluster.
	t.Run("backend", func(t *testing.T) {
		t.Run("all", func(t *testing.T) {
			locktest.Run(t, func(*testing.T) lock.Backend { return b })
		})
	})
	open := func() redis.UniversalClient { return clusterClient(t, c) }
	const resource = "inventory:sku-42"
	key := rediskeys.Default().Lock(resource)
	master := func() *redis.Client {
		rdb.ReloadState(t.Context())
		m, err := rdb.MasterForKey(t.Context(), key)
		require.NoError(t, err)
		return m
	}

	t.Run("a slot moves while it is held and waited for", func(t *testing.T) {
		p := newParty(t, open, lock.WithTTL(10*time.Second))
		s := p.acquire(p.first, resource)
		waiting := p.wait(resource)
		moveSlot(t, rdb, key)
		require.NoError(t, b.Renew(t.Context(), lock.Request{Resource: resource, Nonce: s.Fence().Nonce, TTL: 10 * time.Second}))
		require.NoError(t, s.Release(t.Context()))
		require.NoError(t, <-waiting)
		p.usable(resource)
	})

	t.Run("CLUSTER FAILOVER while it is held and waited for", func(t *testing.T) {
		p := newParty(t, open, lock.WithTTL(10*time.Second))
		s := p.acquire(p.first, resource)
		waiting := p.wait(resource)
		old := master().Options().Addr
		require.Eventually(t, func() bool {
			replica := replicaOf(t, c, old)
			return replica != nil && replica.ClusterFailover(t.Context()).Err() == nil
		}, soon, 50*time.Millisecond)
		require.Eventually(t, func() bool { return master().Options().Addr != old }, soon, 50*time.Millisecond)
		select {
		case <-s.Lost():
			t.Fatal("the lock was replicated, and lost all the same")
		case <-time.After(4 * time.Second): // one renewal
		}
		require.NoError(t, s.Release(t.Context()))
		require.NoError(t, <-waiting)
		p.usable(resource)
	})

	t.Run("a node hangs: the leases of the others are renewed", func(t *testing.T) {
		l, err := lock.New(b, lock.WithTTL(3*time.Second))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		node := nodeAt(t, c, master().Options().Addr)
		leases := make(map[string]*lock.Lease)
		for i := range 60 {
			r := fmt.Sprintf("%s:%d", rand.Text(), i)
			if leases[r], err = l.Acquire(t.Context(), r); err != nil {
				require.NoError(t, err)
			}
		}
		require.NoError(t, node.Pause())
		lost := 0
		time.AfterFunc(7*time.Second, func() { _ = node.Resume() })
		for r, s := range leases {
			m, err := rdb.MasterForKey(t.Context(), rediskeys.Default().Lock(r))
			require.NoError(t, err)
			if m.Options().Addr == node.Addr() {
				<-s.Lost()
				lost++
			}
		}
		require.NotZero(t, lost)
		for r, s := range leases {
			m, err := rdb.MasterForKey(t.Context(), rediskeys.Default().Lock(r))
			require.NoError(t, err)
			if m.Options().Addr == node.Addr() {
				continue
			}
			select {
			case <-s.Lost():
				t.Errorf("%s: its node answered all the time: %v", r, context.Cause(s.Context()))
			default:
			}
		}
	})

	t.Run("the master is killed while it is held and waited for", func(t *testing.T) {
		require.Eventually(t, func() bool { return healthy(t, c) }, soon, 50*time.Millisecond)
		p := newParty(t, open, lock.WithTTL(5*time.Second))
		s := p.acquire(p.first, resource)
		waiting := p.wait(resource)
		require.NoError(t, nodeAt(t, c, master().Options().Addr).Kill())
		// Lost or kept: it depends on what had been replicated, and on how long the
		// election takes. What counts is that both get on, in an order.
		released := make(chan error, 1)
		go func() { released <- s.Release(t.Context()) }()
		require.NoError(t, <-waiting)
		<-released
		p.usable(resource)
	})
}

// moveSlot moves the slot of key, with all that is in it, to another master.
func moveSlot(t *testing.T, rdb *redis.ClusterClient, key string) {
	t.Helper()
	moveKeys(t, rdb, key)()
}

// moveKeys moves all that is in the slot of key to another master. The slot itself is
// on its way there until arrive is called.
func moveKeys(t *testing.T, rdb *redis.ClusterClient, key string) (arrive func()) {
	t.Helper()
	ctx := t.Context()
	from, err := rdb.MasterForKey(ctx, key)
	require.NoError(t, err)
	slot := rdb.ClusterKeySlot(ctx, key).Val()
	id := func(c *redis.Client) string {
		v, err := c.ClusterMyID(ctx).Result()
		require.NoError(t, err)
		return v
	}
	var masters []*redis.Client
	var to *redis.Client
	all := make(chan *redis.Client, 16)
	require.NoError(t, rdb.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error { all <- c; return nil }))
	close(all)
	for c := range all {
		masters = append(masters, c)
		if c.Options().Addr != from.Options().Addr {
			to = c
		}
	}
	do := func(c *redis.Client, args ...any) {
		t.Helper()
		require.NoError(t, c.Do(ctx, args...).Err())
	}
	do(to, "cluster", "setslot", slot, "importing", id(from))
	do(from, "cluster", "setslot", slot, "migrating", id(to))
	host, port, found := strings.Cut(to.Options().Addr, ":")
	require.True(t, found)
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
		require.NoError(t, err)
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		do(from, args...)
	}
	return func() {
		do(to, "cluster", "setslot", slot, "node", id(to))
		do(from, "cluster", "setslot", slot, "node", id(to))
		for _, m := range masters {
			do(m, "cluster", "setslot", slot, "node", id(to))
		}
	}
}

func nodeAt(t *testing.T, c *localserver.RedisCluster, addr string) *localserver.Redis {
	t.Helper()
	i := slices.IndexFunc(c.Nodes, func(n *localserver.Redis) bool { return n.Addr() == addr })
	require.GreaterOrEqual(t, i, 0)
	return c.Nodes[i]
}

// replicaOf returns a client of a replica of the master at addr that is up to date.
func replicaOf(t *testing.T, c *localserver.RedisCluster, addr string) *redis.Client {
	t.Helper()
	_, port, _ := strings.Cut(addr, ":")
	for _, n := range c.Nodes {
		rdb := redis.NewClient(&redis.Options{Addr: n.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		info := rdb.Info(t.Context(), "replication").Val()
		if strings.Contains(info, "role:slave") && strings.Contains(info, "master_port:"+port+"\r") && strings.Contains(info, "master_link_status:up") {
			return rdb
		}
	}
	return nil
}

// healthy reports whether every node says that the cluster is well, and every master
// has a replica that follows it. One that has just been asleep still says that it is
// a master.
func healthy(t *testing.T, c *localserver.RedisCluster) bool {
	t.Helper()
	masters, replicas := 0, 0
	for _, n := range c.Nodes {
		rdb := redis.NewClient(&redis.Options{Addr: n.Addr()})
		info := rdb.ClusterInfo(t.Context()).Val()
		role := rdb.Info(t.Context(), "replication").Val()
		_ = rdb.Close()
		switch {
		case !strings.Contains(info, "cluster_state:ok"):
			return false
		case strings.Contains(role, "role:master") && strings.Contains(role, "state=online"):
			masters++
		case strings.Contains(role, "role:slave") && strings.Contains(role, "master_link_status:up"):
			replicas++
		}
	}
	return masters == len(c.Nodes)/2 && replicas == len(c.Nodes)/2
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	servers := servertest.NewRedisSentinel(t, 2, 3)
	open := func() redis.UniversalClient {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: localserver.SentinelMaster, SentinelAddrs: servers.Addrs()})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	p := newParty(t, open, lock.WithTTL(5*time.Second))
	p.usable("inventory:sku-42")
	s := p.acquire(p.first, "inventory:sku-42")
	waiting := p.wait("inventory:sku-42")
	require.NoError(t, servers.Master.Kill())
	released := make(chan error, 1)
	go func() { released <- s.Release(t.Context()) }()
	require.NoError(t, <-waiting)
	<-released
	p.usable("inventory:sku-42")
}
