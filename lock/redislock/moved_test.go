package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

// Who listens for a slot that moves is told so, and hears of the releases on the new
// node. The client of this waiter does nothing else: none of its commands is sent
// elsewhere, from which it could learn where the slot has gone.
func TestWaitersFollowASlotThatMoves(t *testing.T) {
	t.Parallel()
	c := servertest.NewRedisCluster(t, 3, 0)
	mover := clusterClient(t, c)
	holder, err := redislock.New(clusterClient(t, c))
	require.NoError(t, err)
	waiter, err := redislock.New(clusterClient(t, c))
	require.NoError(t, err)
	for i := range 3 {
		held, waiting := request(), request()
		held.Resource = fmt.Sprint("inventory:", i)
		waiting.Resource = held.Resource
		token, err := holder.Acquire(t.Context(), held)
		require.NoError(t, err)
		wake, stop := waiter.Watch(waiting)
		hear(t, wake, "not in effect")
		_, err = waiter.Acquire(t.Context(), waiting)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Empty(t, wake)

		moveSlot(t, mover, rediskeys.Default().Lock(held.Resource))
		begun := time.Now()
		select {
		case <-wake: // what was missed may have been a release
			t.Log("listens to the new node after", time.Since(begun))
		case <-time.After(givenUp):
			t.Fatal("it listens to the old node")
		}
		_, err = waiter.Acquire(t.Context(), waiting)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, holder.Release(t.Context(), held))
		hear(t, wake, "a release on the new node is not heard")
		next, err := waiter.Acquire(t.Context(), waiting)
		require.NoError(t, err)
		require.Greater(t, next, token)
		stop()
	}
}
