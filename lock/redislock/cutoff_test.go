package redislock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// A holder that is cut off counts on less than the server grants: until a hundredth of
// the TTL before anybody else can have the lock, however late the replies came. The
// deadlines are compared with what the next one saw, and not the moments at which
// goroutines ran, so that a slow machine only makes the distance greater.
func TestACutOffHoldersDeadlineIsBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const pairs, each = 20, 8
	c := &cutOff{url: servertest.Redis(t), prefix: "test-" + rand.Text(), ttl: 400 * time.Millisecond, delay: 60 * time.Millisecond}
	c.run(t, pairs, each)
	require.EqualValues(t, pairs*each, c.trials.Load())
	t.Logf("in %d of %d trials the holder's context was still alive at the next grant", c.overlaps.Load(), c.trials.Load())
}

// BenchmarkCutOff cuts 1,000 holders off from Redis and reports how many of them had
// a live context when the next one had the lock already. The margin that a holder
// does not count on is 12ms here; a machine that lets a goroutine wait for longer
// than that shows why a context alone is no guard. A deadline that is not before the
// next grant is a failure on any machine.
func BenchmarkCutOff(b *testing.B) {
	c := &cutOff{url: servertest.Redis(b), prefix: "bench-" + rand.Text(), ttl: time.Second}
	for b.Loop() {
		c.run(b, 100, 10)
	}
	b.ReportMetric(float64(c.overlaps.Load()), "overlaps")
	b.ReportMetric(float64(c.trials.Load()), "trials")
}

// A cutOff is a number of trials in which a holder loses its network.
type cutOff struct {
	url, prefix      string
	ttl              time.Duration
	delay            time.Duration // of each reply to the holder
	trials, overlaps atomic.Int64
}

func (c *cutOff) run(t testing.TB, pairs, each int) {
	ctx := t.Context()
	var all sync.WaitGroup
	for pair := range pairs {
		holder, network := c.locker(t)
		next, undisturbed := c.locker(t)
		undisturbed.delay = 0
		resource := fmt.Sprintf("cut:%d:%s", pair, rand.Text())
		all.Go(func() {
			for done := 0; done < each && ctx.Err() == nil; {
				network.cut.Store(false)
				s, err := holder.Acquire(ctx, resource)
				if err != nil {
					continue // its connection has not come back yet
				}
				if done%2 == 1 { // every other one is renewed first
					for first := s.Deadline(); s.Deadline().Equal(first) && s.Context().Err() == nil; {
						<-time.After(c.ttl / 50)
					}
				}
				network.cut.Store(true)
				after, err := next.Acquire(ctx, resource)
				granted := time.Now()
				if err != nil {
					t.Error(err)
					return
				}
				if s.Context().Err() == nil {
					c.overlaps.Add(1)
				}
				if spare := granted.Sub(s.Deadline()); spare < c.ttl/100 {
					t.Errorf("the next one has the lock %v after the deadline of the holder that was cut off; the least is %v, a hundredth of the TTL", spare, c.ttl/100)
				}
				done++
				c.trials.Add(1)
				_ = after.Release(ctx)
			}
		})
	}
	all.Wait()
}

// locker returns a locker and its network.
func (c *cutOff) locker(t testing.TB) (*lock.Locker, *cutNetwork) {
	o, err := redis.ParseURL(c.url)
	require.NoError(t, err)
	o.PoolSize, o.MaxRetries, o.ReadTimeout, o.ContextTimeoutEnabled = 1, -1, time.Second, true
	network := &cutNetwork{delay: c.delay}
	o.Dialer = network.dial
	rdb := redis.NewClient(o)
	b, err := redislock.New(rdb, redislock.WithPrefix(c.prefix))
	require.NoError(t, err)
	l, err := lock.New(b, lock.WithTTL(c.ttl), lock.WithRetryWait(5*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = l.Close(), rdb.Close() })
	return l, network
}

// A cutNetwork loses what is sent while it is cut, as a network does that drops packets,
// and brings replies late.
type cutNetwork struct {
	cut   atomic.Bool
	delay time.Duration
}

func (n *cutNetwork) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return cutConn{conn, n}, err
}

type cutConn struct {
	net.Conn
	network *cutNetwork
}

func (c cutConn) Write(p []byte) (int, error) {
	if c.network.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.network.delay > 0 {
		<-time.After(c.network.delay)
	}
	return n, err
}
