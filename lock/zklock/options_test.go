package zklock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock/zklock"
)

// The session that this back end asks for.
func TestATTLThatTheSessionTimeoutDoesNotCoverIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, []string{"127.0.0.1:1"})
	for says, ttl := range map[string]time.Duration{
		"WithSessionTimeout":   time.Hour,
		"TTL of 1m0s at most:": 61 * time.Second,
	} {
		r := request()
		r.TTL = ttl
		_, err := b.Acquire(t.Context(), r)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.ErrorIs(t, b.Renew(t.Context(), r), guard.ErrInvalid)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]struct {
		servers []string
		opt     zklock.Option
	}{
		"no servers":                  {servers: nil},
		`server ""`:                   {servers: []string{""}},
		`server "zk://a:1"`:           {servers: []string{"zk://a:1"}},
		"a path by WithPrefix":        {servers: []string{"a:1/app"}},
		"name each by itself":         {servers: []string{"a:1,b:1"}},
		"WithAuth what proves":        {servers: []string{"me:s3cret@a:1"}},
		"session timeout 1ms":         {opt: zklock.WithSessionTimeout(time.Millisecond)},
		`prefix "fencing"`:            {opt: zklock.WithPrefix("fencing")},
		`prefix "/a//b"`:              {opt: zklock.WithPrefix("/a//b")},
		`prefix "/"`:                  {opt: zklock.WithPrefix("/")},
		`prefix "/a/../b"`:            {opt: zklock.WithPrefix("/a/../b")},
		"an empty ACL":                {opt: zklock.WithACL()},
		"the dialer is nil":           {opt: zklock.WithDialer(nil)},
		"proof of WithAuth is empty:": {opt: zklock.WithAuth("digest", "")},
	} {
		servers := c.servers
		if c.opt == nil {
			c.opt = func(*zklock.Config) {}
		} else {
			servers = []string{"127.0.0.1:1"}
		}
		_, err := zklock.New(servers, c.opt)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := zklock.New([]string{"127.0.0.1:1"}, nil)
	require.ErrorContains(t, err, "an option is nil")
}

// The defaults of ZooKeeper, of this package and of the locker.
func TestTheDefaultsFitTogether(t *testing.T) {
	t.Parallel()
	e := servertest.NewZooKeeper(t, 1, localserver.ZooKeeperOptions{Settings: map[string]string{
		"tickTime": "2000", "minSessionTimeout": "-1", "maxSessionTimeout": "-1",
	}})
	b, err := zklock.New(e.Addrs())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	l := locker(t, b)
	s, err := l.Acquire(t.Context(), resource)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context()))
	_, err = open(t, e.Addrs()).Acquire(t.Context(), request())
	require.ErrorContains(t, err, "ZooKeeper grants 40s; raise its maxSessionTimeout, or take a TTL of 30s at most")
}

// A TTL that the granted session does not cover is an error, not a lock that ends early.
func TestATTLThatTheGrantedSessionDoesNotCoverIsRefused(t *testing.T) {
	t.Parallel()
	servers := servertest.NewZooKeeper(t, 1, localserver.ZooKeeperOptions{Settings: map[string]string{"maxSessionTimeout": "6000"}}).Addrs()
	b, r := open(t, servers), request()
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorContains(t, err, "a TTL of 1m0s needs a session timeout of 1m20s, and ZooKeeper grants 6s; raise its maxSessionTimeout, or take a TTL of 4.5s at most")
	r.TTL = 4500 * time.Millisecond
	acquire(t, b, r)
	r.TTL = 5 * time.Second
	require.ErrorIs(t, b.Renew(t.Context(), r), guard.ErrInvalid)
}
