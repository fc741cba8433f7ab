package redislock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// joinEnv, which has the text of a fence, makes the test binary a process that joins its
// lock, says until when it may count on it, and stays.
const (
	joinEnv   = "REDISLOCK_TEST_JOIN"
	serverEnv = "REDISLOCK_TEST_JOIN_SERVER"
	prefixEnv = "REDISLOCK_TEST_JOIN_PREFIX"
)

const (
	holderTTL = 2 * time.Second
	joinerTTL = 5 * time.Second
)

func joinAndStay(text string) error {
	var f guard.Fence
	if err := f.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	o, err := redis.ParseURL(os.Getenv(serverEnv))
	if err != nil {
		return err
	}
	b, err := redislock.New(redis.NewClient(o), redislock.WithPrefix(os.Getenv(prefixEnv)))
	if err != nil {
		return err
	}
	// Without renewal, so that what it says stays true.
	l, err := lock.New(b, lock.WithTTL(joinerTTL), lock.WithoutRenewal())
	if err != nil {
		return err
	}
	s, err := l.Join(context.Background(), f)
	if err != nil {
		return err
	}
	fmt.Println(s.Deadline().UnixNano())
	_, err = io.Copy(io.Discard, os.Stdin) // until its parent ends
	return err
}

// A process that joins a lock and is killed never leaves it. Its part of the lock lasts
// as long as it may believe that it has it, and no longer, whatever the others do.
func TestTheLockOfAKilledJoinerEndsWithItsTTL(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), "test-"+request().Nonce
	locker := func() (*lock.Locker, *redislock.Backend) {
		b, err := redislock.New(client(t, url), redislock.WithPrefix(prefix))
		require.NoError(t, err)
		l, err := lock.New(b, lock.WithTTL(holderTTL))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l, b
	}
	holder, b := locker()
	s, err := holder.Acquire(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	fence, err := s.Fence().MarshalText()
	require.NoError(t, err)

	joiner := exec.CommandContext(t.Context(), os.Args[0])
	joiner.Env = append(os.Environ(), joinEnv+"="+string(fence), serverEnv+"="+url, prefixEnv+"="+prefix)
	_, err = joiner.StdinPipe()
	require.NoError(t, err)
	out, err := joiner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, joiner.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	ns, err := strconv.ParseInt(strings.TrimSpace(said), 10, 64)
	require.NoError(t, err, said)
	believes := time.Unix(0, ns)
	require.NoError(t, joiner.Process.Kill())
	require.Error(t, joiner.Wait())
	killed := time.Now()

	// A renewal by the first one, who counts on less, takes nothing from the joiner.
	before := s.Deadline()
	require.Eventually(t, func() bool { return s.Deadline().After(before) }, soon, 10*time.Millisecond)
	h, err := b.Inspect(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	require.Equal(t, 2, h.Members)
	require.NoError(t, s.Release(t.Context()))
	h, err = b.Inspect(t.Context(), "inventory:sku-42")
	require.NoError(t, err)
	require.Equal(t, 1, h.Members, "the joiner may be alive")
	require.LessOrEqual(t, h.Remaining, joinerTTL)

	ctx, cancel := context.WithTimeout(t.Context(), joinerTTL+10*time.Second)
	defer cancel()
	waiting, _ := locker()
	next, err := waiting.Acquire(ctx, "inventory:sku-42")
	require.NoError(t, err, "the lock of a dead joiner does not end")
	got := time.Now()
	require.Greater(t, got.Round(0), believes, "a joiner that lived would have believed that it has the lock")
	require.Greater(t, next.Fence().Token, s.Fence().Token)
	t.Log("free", got.Sub(killed), "after the kill, and", got.Round(0).Sub(believes), "after the joiner's deadline")
	require.ErrorIs(t, b.Renew(t.Context(), lock.Request{Resource: "inventory:sku-42", Nonce: s.Fence().Nonce, TTL: time.Minute}), lock.ErrLost)
	require.NoError(t, next.Release(t.Context()))
}
