package localserver_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
)

// Three members elect a leader, and another one when it is killed; it comes back.
func TestZooKeeperSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	e, err := localserver.StartZooKeeper(t.Context(), 3, localserver.ZooKeeperOptions{})
	skipUnlessInstalled(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop()) })
	leader := func() *localserver.ZooKeeper {
		for _, m := range e.Members {
			if leads, err := m.Leads(t.Context()); err == nil && leads {
				return m
			}
		}
		return nil
	}
	first := leader()
	require.NotNil(t, first)
	require.NoError(t, first.Kill())
	require.Eventually(t, func() bool { m := leader(); return m != nil && m != first }, time.Minute, 50*time.Millisecond)
	require.NoError(t, first.Restart(t.Context()))
	leads, err := first.Leads(t.Context())
	require.NoError(t, err)
	require.False(t, leads)
	require.Len(t, e.Addrs(), 3)
	require.NoError(t, e.Stop())
	_, err = net.Dial("tcp", first.Addr())
	require.Error(t, err)
}
