package objectguard_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func newDir(t testing.TB) *objectguard.Dir {
	t.Helper()
	d, err := objectguard.NewDir(t.TempDir())
	require.NoError(t, err)
	return d
}

func open(t testing.TB, b objectguard.Bucket, opts ...objectguard.Option) *objectguard.Guard {
	t.Helper()
	g, err := objectguard.New(b, opts...)
	require.NoError(t, err)
	return g
}

func fence(resource string, token guard.Token, holder string) guard.Fence {
	return guard.Fence{Resource: resource, Token: token, Nonce: rand.Text(), Holder: holder}
}

// raised raises a fence and returns a context that carries it.
func raised(t testing.TB, g *objectguard.Guard, resource string, token guard.Token, holder string) (context.Context, guard.Fence) {
	t.Helper()
	f := fence(resource, token, holder)
	require.NoError(t, g.Raise(context.Background(), f))
	return guard.NewContext(context.Background(), f), f
}
