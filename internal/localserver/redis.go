package localserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions are the wishes for a Redis server.
type RedisOptions struct {
	// Args are further arguments of redis-server, such as "--appendonly", "yes".
	// They take precedence over the defaults here: no snapshots, no append-only
	// file.
	Args []string

	// OwnClock gives the server a time of day that SetClock sets.
	OwnClock bool
}

// Redis is a private Redis server. Its files are in Dir.
type Redis struct{ server }

// StartRedis starts a server. It returns when the server answers; ctx bounds only
// that. ErrNotInstalled if the machine has no redis-server.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	path, err := findTool("redis-server", "redis-server", "redis")
	if err != nil {
		return nil, err
	}
	p, err := newProcess("redis", path, "redis")
	if err != nil {
		return nil, err
	}
	s := &Redis{server{process: p, end: terminate}}
	s.ready = s.answers
	if o.OwnClock {
		if err := p.ownClock(ctx); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	err = s.launch(ctx, func(port int) error {
		p.args = append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", p.dir, "--save", "", "--appendonly", "no"}, o.Args...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// URL returns the connection string of database 0.
func (s *Redis) URL() string { return "redis://" + s.Addr() + "/0" }

// answers tells this server from another one that took the port, and waits until
// the data set is loaded.
func (s *Redis) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer closeQuietly(rdb)
	err := rdb.Ping(ctx).Err()
	if redis.HasErrorPrefix(err, "NOAUTH") {
		return nil // it answers, and tells no more without the password in Args
	}
	if err != nil {
		return err
	}
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.PID())) {
		return fmt.Errorf("another Redis answers at %s: address already in use", s.Addr())
	}
	return nil
}

// startSentinel starts a sentinel with further lines of configuration, which it
// keeps, and changes, in a file.
func startSentinel(ctx context.Context, lines []string) (*Redis, error) {
	path, err := findTool("redis-server", "redis-server", "redis")
	if err != nil {
		return nil, err
	}
	p, err := newProcess("sentinel", path, "redis")
	if err != nil {
		return nil, err
	}
	s := &Redis{server{process: p, end: terminate}}
	s.ready = s.answers
	config := filepath.Join(p.dir, "sentinel.conf")
	p.args = []string{config, "--sentinel"}
	err = s.launch(ctx, func(port int) error {
		all := append([]string{"bind 127.0.0.1", "port " + strconv.Itoa(port), "dir " + p.dir}, lines...)
		if err := os.WriteFile(config, []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil {
			return err
		}
		return p.user.own(config)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}
