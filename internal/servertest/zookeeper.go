package servertest

import (
	"context"
	"strings"
	"testing"

	"github.com/go-fencing/fencing/internal/localserver"
)

// ZooKeeper returns the addresses of the ZooKeeper that the test process shares, of
// one member where it is a child process. Isolate tests from each other by their
// nodes.
func ZooKeeper(t testing.TB) []string {
	t.Helper()
	addrs, err := zookeeper.get(ZooKeeperEnv, func(ctx context.Context) (*localserver.ZooKeeperEnsemble, string, error) {
		e, err := localserver.StartZooKeeper(ctx, 1, localserver.ZooKeeperOptions{})
		if err != nil {
			return nil, "", err
		}
		return e, strings.Join(e.Addrs(), ","), nil
	})
	require(t, err)
	return strings.Split(addrs, ",")
}

// NewZooKeeper starts an ensemble of its own, for a test that breaks it. It is
// stopped at the end of the test.
func NewZooKeeper(t testing.TB, members int, o localserver.ZooKeeperOptions) *localserver.ZooKeeperEnsemble {
	t.Helper()
	e, err := localserver.StartZooKeeper(t.Context(), members, o)
	require(t, err)
	stopAtEnd(t, e.Stop)
	return e
}
