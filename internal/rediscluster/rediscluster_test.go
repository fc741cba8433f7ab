package rediscluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediscluster"
)

func TestHeed(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		looks int64
	}{
		"none":                  {nil, 0},
		"an answer":             {redis.Nil, 0},
		"an answer, in another": {fmt.Errorf("acquire: %w", redis.Nil), 0},
		"nobody listens":        {&wrapped{syscall.ECONNREFUSED}, 1},
		"nobody answers":        {context.DeadlineExceeded, 1},
		"any other":             {errors.New("no route"), 1},
		"the caller went away":  {fmt.Errorf("acquire: %w", context.Canceled), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var looks atomic.Int64
				rdb := redis.NewClusterClient(&redis.ClusterOptions{
					ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
						looks.Add(1)
						return nil, nil
					},
				})
				rediscluster.Heed(rdb, c.err)
				time.Sleep(time.Minute)
				require.Equal(t, c.looks, looks.Load())
				require.NoError(t, rdb.Close())
			})
		})
	}
	rediscluster.Heed(redis.NewClient(&redis.Options{}), syscall.ECONNREFUSED) // has nothing to look up
}

type wrapped struct{ error }

func (w *wrapped) Unwrap() error { return w.error }
