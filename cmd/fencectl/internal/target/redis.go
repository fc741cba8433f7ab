package target

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Redis is the address of a Redis server.
type Redis struct {
	Setting
	Options *redis.Options
}

func init() {
	// go-redis logs to stderr what it returns as errors too.
	logging.Disable()
}

// ParseRedis reads a redis://, rediss:// or unix:// URL. The error is ErrInvalid.
func ParseRedis(s Setting) (*Redis, error) {
	if s.Value == "" {
		return nil, missing("Redis given; name one with --redis redis://host:port/0 or in FENCING_REDIS_URL")
	}
	u, err := s.split("redis", "rediss", "unix")
	if err != nil {
		return nil, err
	}
	u.User = nil // the password is often written where the user should be
	s.shown = shown(u)
	o, err := redis.ParseURL(s.Value)
	if err != nil {
		return nil, s.bad(err.Error()) // quotes a part of what is shown anyway
	}
	return &Redis{s, o}, nil
}

// String names the server, without user and password.
func (r *Redis) String() string {
	if r.Options.Network == "unix" {
		return "unix://" + r.Options.Addr
	}
	scheme := "redis"
	if r.Options.TLSConfig != nil {
		scheme = "rediss"
	}
	return fmt.Sprintf("%s://%s/%d", scheme, r.Options.Addr, r.Options.DB)
}

// Connect returns a client of a server that answers. The error is ErrUnreachable.
func (r *Redis) Connect(ctx context.Context) (*redis.Client, error) {
	err := r.ping(ctx)
	if err == nil {
		return redis.NewClient(r.Options), nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, &failure{fmt.Sprintf("%s: cannot use %s: %s; %s", r.Source, r, OneLine(err.Error()), r.hint(err)), ErrUnreachable}
}

// hint says what to do about an error of the first command.
func (r *Redis) hint(err error) string {
	dial, ok := errors.AsType[*net.OpError](err)
	switch {
	case redis.HasErrorPrefix(err, "NOAUTH"):
		return "write user and password into the URL, in front of the host and an @; a password alone with a colon before it"
	case redis.HasErrorPrefix(err, "WRONGPASS"):
		return "check user and password in the URL"
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "allow this user the command ping, or name another one"
	case r.Options.TLSConfig != nil && !(ok && dial.Op == "dial"): // it listens, and shakes no hands
		return "does it speak TLS? if not, write redis:// in place of rediss://"
	}
	return "is a server running there?"
}

// ping tries once. The client of the caller will try again at every failure, many
// times over; while nothing is known to be there, that only takes time.
func (r *Redis) ping(ctx context.Context) error {
	o := *r.Options
	o.MaxRetries, o.DialerRetries = -1, 1
	rdb := redis.NewClient(&o)
	defer func() { _ = rdb.Close() }() // nothing was done with it
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return rdb.Ping(ctx).Err()
}

// Unusable is the error for a server that answers and then does not do what is
// needed. It is ErrUnreachable.
func (r *Redis) Unusable(err error) error {
	return &failure{fmt.Sprintf("%s: cannot use %s: %s", r.Source, r, OneLine(err.Error())), ErrUnreachable}
}
