package servertest

import (
	"context"
	"strings"
	"testing"

	"github.com/go-fencing/fencing/internal/localserver"
)

// Etcd returns the URLs of the etcd that the test process shares, of one member
// where it is a child process. Isolate tests from each other by their keys.
func Etcd(t testing.TB) []string {
	t.Helper()
	urls, err := etcd.get(EtcdEnv, func(ctx context.Context) (*localserver.EtcdCluster, string, error) {
		c, err := localserver.StartEtcd(ctx, 1)
		if err != nil {
			return nil, "", err
		}
		return c, strings.Join(c.URLs(), ","), nil
	})
	require(t, err)
	return strings.Split(urls, ",")
}

// NewEtcd starts a cluster of its own, for a test that breaks it. It is stopped at
// the end of the test.
func NewEtcd(t testing.TB, members int) *localserver.EtcdCluster {
	t.Helper()
	c, err := localserver.StartEtcd(t.Context(), members)
	require(t, err)
	stopAtEnd(t, c.Stop)
	return c
}
