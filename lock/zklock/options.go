package zklock

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-fencing/fencing/guard"
)

// DefaultPrefix is the path below which the nodes are, unless [WithPrefix] names another.
const DefaultPrefix = "/fencing"

// An Option changes a default of [New].
type Option func(*config)

type config struct {
	timeout time.Duration
	prefix  string
	acl     []zk.ACL
	auth    []credential
	dial    zk.Dialer
}

type credential struct{ scheme, secret string }

// WithSessionTimeout sets the session timeout that is asked for: how long after the
// death of this process its locks become free. It must be a third longer than the TTL
// of the locker, see the package. Defaults to 40s, for the default TTL of 30s. From
// 100ms to an hour.
func WithSessionTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithPrefix sets the path below which all nodes are, which is also how to stay inside a
// part of ZooKeeper's tree that is one's own ("chroot"). Missing nodes of it are
// created. Defaults to [DefaultPrefix].
func WithPrefix(path string) Option { return func(c *config) { c.prefix = path } }

// WithACL sets who may do what with the nodes that are created. Defaults to everybody
// everything. All processes that use a lock need all rights on its nodes but admin.
func WithACL(acl ...zk.ACL) Option { return func(c *config) { c.acl = acl } }

// WithAuth gives ZooKeeper a proof of who this client is, for "digest" the user's name
// and password as name:password. It can be given several times.
func WithAuth(scheme, secret string) Option {
	return func(c *config) { c.auth = append(c.auth, credential{scheme, secret}) }
}

// WithDialer sets what connects to a server, for TLS for example. It must return by the
// end of the timeout that it is given. Defaults to [net.DialTimeout].
func WithDialer(d zk.Dialer) Option { return func(c *config) { c.dial = d } }

func newConfig(servers []string, opts []Option) (*config, error) {
	c := &config{timeout: 40 * time.Second, prefix: DefaultPrefix, acl: zk.WorldACL(zk.PermAll), dial: net.DialTimeout}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("zklock: an option is nil: %w", guard.ErrInvalid)
		}
		opt(c)
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("zklock: no servers are named: %w", guard.ErrInvalid)
	}
	for _, s := range servers {
		if strings.Contains(s, "@") { // not %q: it may be a password
			return nil, fmt.Errorf("zklock: a server is host:port, and has no user; give WithAuth what proves who you are: %w", guard.ErrInvalid)
		}
		if s == "" || strings.ContainsAny(s, "/, ") {
			return nil, fmt.Errorf("zklock: server %q is not of the form host:port; name each by itself, and a path by WithPrefix: %w", s, guard.ErrInvalid)
		}
	}
	switch {
	case c.timeout < 100*time.Millisecond || c.timeout > time.Hour:
		return nil, fmt.Errorf("zklock: session timeout %v is not from 100ms to 1h: %w", c.timeout, guard.ErrInvalid)
	case !strings.HasPrefix(c.prefix, "/") || strings.HasSuffix(c.prefix, "/") || !plain(c.prefix):
		return nil, fmt.Errorf("zklock: prefix %q is not a path of the form /a/b: %w", c.prefix, guard.ErrInvalid)
	case len(c.acl) == 0:
		return nil, fmt.Errorf("zklock: an empty ACL lets nobody do anything: %w", guard.ErrInvalid)
	case c.dial == nil:
		return nil, fmt.Errorf("zklock: the dialer is nil: %w", guard.ErrInvalid)
	}
	for _, a := range c.auth {
		if a.scheme == "" || a.secret == "" {
			return nil, fmt.Errorf("zklock: a scheme or proof of WithAuth is empty: %w", guard.ErrInvalid)
		}
	}
	return c, nil
}

// plain reports whether ZooKeeper takes every part of a path as a name.
func plain(path string) bool {
	parts := strings.Split(path, "/")[1:]
	return !slices.ContainsFunc(parts, func(part string) bool {
		return part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool {
			return r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
		})
	})
}
