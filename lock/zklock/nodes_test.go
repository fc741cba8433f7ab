package zklock

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/sequencer"
)

// ZooKeeper numbers the children of a node by an int32, which wraps.
func TestTheQueueKeepsItsOrderWhereTheSequenceWraps(t *testing.T) {
	t.Parallel()
	q, err := parse([]string{
		mark("c") + "-2147483648", mark("a") + "2147483646", mark("d") + "-2147483647", mark("b") + "2147483647",
		waitKind + "X-0000000007", waitKind + "Y--000000003", "offset-5", "lock-", "lock-x-y", "other",
	})
	require.NoError(t, err)
	var order []string
	for _, n := range q.locks {
		order = append(order, n.mark)
	}
	require.Equal(t, []string{mark("a"), mark("b"), mark("c"), mark("d")}, order)
	require.EqualValues(t, 5, q.offset)
	predecessor, waits := q.before(q.locks[2])
	require.True(t, waits)
	require.Equal(t, q.locks[1].name, predecessor)
	_, waits = q.before(q.locks[0])
	require.False(t, waits)
	require.Len(t, q.waiters, 2)
	predecessor, _ = q.before(q.waiters[1])
	require.Equal(t, q.waiters[0].name, predecessor)
	predecessor, _ = q.before(q.waiters[0])
	require.Equal(t, q.locks[0].name, predecessor, "the first who waits watches the lock")
}

func TestAnOffsetThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"offset-", "offset-x", "offset--1"} {
		_, err := parse([]string{name})
		require.ErrorIs(t, err, guard.ErrInvalid)
	}
	_, err := queue{offset: math.MaxInt64 - 5}.token(6)
	require.ErrorIs(t, err, sequencer.ErrExhausted)
}

// No two resources share a directory, and all are names for ZooKeeper.
func FuzzDir(f *testing.F) {
	for _, name := range []string{"a", ".", "..", "a/b", "a%2Fb", "сток", "%2E", "\x7f"} {
		f.Add(name, "a")
	}
	b := &Backend{config: &config{prefix: "/p"}}
	f.Fuzz(func(t *testing.T, one, other string) {
		if one == "" || strings.ContainsRune(one, 0) {
			return
		}
		require.True(t, plain(b.dir(one)), "%q", b.dir(one))
		require.Equal(t, one == other, b.dir(one) == b.dir(other))
	})
}

func TestNodeDataComesBack(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"", "web-1", "a\nb"} {
		ttl, got := decode(encode(lock.Request{TTL: 1500 * time.Millisecond, Holder: holder}))
		require.Equal(t, 1500*time.Millisecond, ttl)
		require.Equal(t, holder, got)
	}
	for _, odd := range []string{"", "x", "-5\nh", "9223372036854775807\nh"} {
		ttl, _ := decode([]byte(odd))
		require.Zero(t, ttl)
	}
}
