package rediscluster_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediscluster"
)

func TestStamp(t *testing.T) {
	t.Parallel()
	ctx, refused := context.Background(), errors.New("WRONGPASS")
	cmds := []redis.Cmder{redis.NewCmd(ctx, "get", "a"), redis.NewStringCmd(ctx, "get", "b")}
	rediscluster.Stamp(cmds, nil)
	require.NoError(t, cmds[0].Err())
	rediscluster.Stamp(cmds, refused)
	require.Equal(t, refused, cmds[0].Err())
	require.Equal(t, refused, cmds[1].Err())

	cmds = []redis.Cmder{redis.NewCmd(ctx, "get", "a"), redis.NewStringCmd(ctx, "get", "b")}
	cmds[1].SetErr(redis.Nil) // which is the error of the pipeline then
	rediscluster.Stamp(cmds, redis.Nil)
	require.NoError(t, cmds[0].Err(), "it has a value")
}
