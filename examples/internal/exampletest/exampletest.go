// Package exampletest runs an example as its reader would.
package exampletest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/internal/servers"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

// Build builds the program of the current folder.
func Build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "example.exe")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// Servers returns a database and a Redis of the test's own: all runs of an example
// lock the same resources.
func Servers(t *testing.T) servers.Servers {
	t.Helper()
	return servers.Servers{Postgres: servertest.Postgres(t), Redis: servertest.NewRedis(t, localserver.RedisOptions{}).URL()}
}

// Run runs the program on s, whatever addresses the environment has, and returns
// what it printed and its exit code.
func Run(t *testing.T, program string, s servers.Servers, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends what it has started then
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = Environment(s)
	text, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(t, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// RunAlone runs the program on servers that it has to start itself.
func RunAlone(t *testing.T, program string) (out string, code int) {
	t.Helper()
	out, code = Run(t, program, servers.Servers{})
	SkipUninstalled(t, servers.Servers{}, out)
	return out, code
}

// Environment is that of a program that runs on s, whatever addresses the test's own
// has.
func Environment(s servers.Servers) []string {
	return append(os.Environ(), "DATABASE_URL="+s.Postgres, "REDIS_URL="+s.Redis)
}

// SkipUninstalled skips the test if the program was to start servers itself and says
// that the machine has none.
func SkipUninstalled(t *testing.T, s servers.Servers, says string) {
	t.Helper()
	if s == (servers.Servers{}) && strings.Contains(says, localserver.ErrNotInstalled.Error()) && os.Getenv("CI") != "true" {
		t.Skip(says)
	}
}

// RequireSecrecy checks that the program repeats nothing of an address that it
// cannot read: there may be a password in it.
func RequireSecrecy(t *testing.T, program string) {
	t.Helper()
	for _, args := range [][]string{
		{"-postgres", "postgres://app:hun/ter2@127.0.0.1/db", "-redis", "redis://127.0.0.1:1/0"},
		{"-postgres", "host=127.0.0.1 password=hun ter2", "-redis", "redis://127.0.0.1:1/0"},
		{"-postgres", "postgres://127.0.0.1:1/db", "-redis", "redis://:hun/ter2@127.0.0.1/0"},
	} {
		out, code := Run(t, program, servers.Servers{}, args...)
		require.Equal(t, 1, code, out)
		require.Contains(t, out, "is not of the form")
		require.NotContains(t, out, "hun")
		require.NotContains(t, out, "ter2")
	}
}
