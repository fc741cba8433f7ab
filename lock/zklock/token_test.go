package zklock_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

func TestTheTokenIsTheZxidOfTheNodesCreation(t *testing.T) {
	t.Parallel()
	servers := servertest.ZooKeeper(t)
	b, r := open(t, servers), request()
	token := acquire(t, b, r)
	require.NoError(t, b.Renew(t.Context(), r))
	c := client(t, servers)
	names := nodes(t, c, b, r.Resource)
	require.Len(t, names, 1)
	_, stat, err := c.Get(b.Dir(r.Resource) + "/" + names[0])
	require.NoError(t, err)
	require.EqualValues(t, stat.Czxid, token)
	require.NotEqual(t, stat.Czxid, stat.Mzxid, "a renewal is a write")
}

// A repair makes the tokens of one resource greater, for good, and no others.
func TestS9_TheOffsetOfARepairIsKept(t *testing.T) {
	t.Parallel()
	b, r, other := open(t, servertest.ZooKeeper(t)), request(), request()
	r.After = 1 << 50
	first := acquire(t, b, r)
	require.EqualValues(t, r.After+1, first)
	r.After = first // greater, not equal
	first = acquire(t, b, r)
	require.Greater(t, first, r.After)
	require.NoError(t, b.Release(t.Context(), r))
	next := rival(r)
	next.After = 0
	require.Greater(t, acquire(t, b, next), first)
	require.Less(t, acquire(t, b, other), first)
	require.Len(t, nodes(t, client(t, servertest.ZooKeeper(t)), b, r.Resource), 2, "the lock and one offset")
}

// The store remembers what an ensemble that was built anew does not.
func TestS13_AnEnsembleThatForgotIsRepairedFromTheStore(t *testing.T) {
	t.Parallel()
	store, name := guard.NewMemory(), request().Resource
	before := guard.Fence{Resource: name, Token: 1 << 50, Nonce: "before"}
	require.NoError(t, store.Raise(t.Context(), before))
	l := locker(t, open(t, servertest.ZooKeeper(t)), lock.WithGuards(store))
	last := before.Token
	for range 3 {
		s, err := l.Acquire(t.Context(), name)
		require.NoError(t, err)
		require.Greater(t, s.Fence().Token, last)
		last = s.Fence().Token
		require.NoError(t, s.Release(t.Context()))
	}
}

func TestS18_APoisonedFenceIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	b, r := open(t, servertest.ZooKeeper(t)), request()
	r.After = math.MaxInt64 - 1
	_, err := b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrJump)
	require.ErrorContains(t, err, `an operator must run "fencectl rebase"`)
	r.After = math.MaxInt64
	_, err = b.Acquire(t.Context(), r)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
}
