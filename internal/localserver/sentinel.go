package localserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// RedisSentinel is a private Redis with replicas and sentinels, which make one of
// the replicas the master when they miss the old one.
type RedisSentinel struct {
	Master    *Redis // at the start
	Replicas  []*Redis
	Sentinels []*Redis
}

// SentinelMaster is the name by which sentinels know the master.
const SentinelMaster = "fencing"

// StartRedisSentinel starts a master, its replicas and the sentinels that watch
// them, and returns when all know each other.
func StartRedisSentinel(ctx context.Context, replicas, sentinels int, o RedisOptions) (*RedisSentinel, error) {
	s := new(RedisSentinel)
	if err := s.start(ctx, replicas, sentinels, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *RedisSentinel) start(ctx context.Context, replicas, sentinels int, o RedisOptions) (err error) {
	o.Args = append([]string{"--repl-diskless-sync-delay", "0"}, o.Args...)
	if s.Master, err = StartRedis(ctx, o); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.Master.Addr())
	if err != nil {
		return err
	}
	for range replicas {
		r, err := StartRedis(ctx, RedisOptions{Args: append([]string{"--replicaof", host, port}, o.Args...)})
		if err != nil {
			return err
		}
		s.Replicas = append(s.Replicas, r)
	}
	for range sentinels {
		n, err := startSentinel(ctx, []string{
			"sentinel monitor " + SentinelMaster + " " + host + " " + port + " " + strconv.Itoa(sentinels/2+1),
			"sentinel down-after-milliseconds " + SentinelMaster + " 1000",
			"sentinel failover-timeout " + SentinelMaster + " 5000",
		})
		if err != nil {
			return err
		}
		s.Sentinels = append(s.Sentinels, n)
	}
	for _, n := range s.Sentinels {
		rdb := redis.NewSentinelClient(&redis.Options{Addr: n.Addr(), DisableIdentity: true})
		defer closeQuietly(rdb)
		err := wait(ctx, func() error {
			m, err := rdb.Master(ctx, SentinelMaster).Result()
			if err == nil && (m["num-slaves"] != strconv.Itoa(replicas) || m["num-other-sentinels"] != strconv.Itoa(sentinels-1)) {
				err = fmt.Errorf("localserver: sentinel knows %s replicas and %s other sentinels", m["num-slaves"], m["num-other-sentinels"])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Addrs returns the addresses of the sentinels.
func (s *RedisSentinel) Addrs() []string {
	addrs := make([]string, len(s.Sentinels))
	for i, n := range s.Sentinels {
		addrs[i] = n.Addr()
	}
	return addrs
}

// Stop ends every server, the sentinels first.
func (s *RedisSentinel) Stop() error {
	var errs []error
	for _, n := range slices.Concat(s.Sentinels, s.Replicas, []*Redis{s.Master}) {
		if n != nil {
			errs = append(errs, n.Stop())
		}
	}
	return errors.Join(errs...)
}
