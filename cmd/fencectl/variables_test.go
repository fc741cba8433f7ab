package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// DATABASE_URL and REDIS_URL are an application's. What looks after it reads both, or a
// script would be locked elsewhere than the application is; what plays does not.
func TestTheServersOfAnApplicationAreNoPlayground(t *testing.T) {
	t.Parallel()
	nowhere := []string{"DATABASE_URL=postgres://app@127.0.0.1:1/shop", "REDIS_URL=redis://127.0.0.1:1/0"}
	for _, args := range [][]string{{"ls"}, {"doctor"}} {
		r := call{args: args, env: nowhere[1:]}.run(t)
		require.Equal(t, 3, r.code, "%v", args)
		require.Contains(t, r.stderr, "REDIS_URL: cannot use", "%v", args)
	}
	r := call{args: []string{"run", "r", "--unfenced", "--", "true"}, env: nowhere[1:]}.run(t)
	require.Equal(t, 3, r.code)
	require.Contains(t, r.stderr, "REDIS_URL: cannot use")
	r = call{args: []string{"demo", "--store=sqlite", "--fast"}, env: nowhere}.run(t)
	require.Equal(t, 0, r.code, r.stderr)
}

// What is given and empty is no server, and no variable takes its place.
func TestAnEmptyAddressIsNoServer(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	nowhere := []string{"REDIS_URL=redis://127.0.0.1:1/0"}
	r := call{args: []string{"ls", "--postgres", db.url, "--redis", ""}, env: nowhere}.run(t)
	require.Equal(t, "nothing\n", r.stdout, r.stderr)
	r = call{args: []string{"ls", "--redis="}, env: nowhere}.run(t)
	require.Contains(t, r.stderr, "no server to look at")
}
