package stack

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server is what a test can do to Redis and to Postgres alike. What cannot be
// done fails the test.
type server struct {
	testing.TB
	machine machine
}

// own makes a server that ends with the test.
func own(t testing.TB, start func(ctx context.Context) (machine, error)) server {
	t.Helper()
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), startBound)
	defer cancel()
	m, err := start(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Stop()) })
	return server{t, m}
}

// Addr returns host:port.
func (s server) Addr() string { return s.machine.Addr() }

// Kill ends the server by SIGKILL.
func (s server) Kill() {
	s.Helper()
	require.NoError(s, s.machine.Kill())
}

// Restart starts a killed server again, on the same files and at the same address.
func (s server) Restart() {
	s.Helper()
	require.NoError(s, s.machine.Restart(s.Context()))
}

// Pause freezes the server: nothing answers, and no connection ends.
func (s server) Pause() {
	s.Helper()
	require.NoError(s, s.machine.Pause())
}

// Resume undoes Pause.
func (s server) Resume() {
	s.Helper()
	require.NoError(s, s.machine.Resume())
}

// Snapshot kills the server, takes a copy of its data and starts it again.
func (s server) Snapshot() (copied string) {
	s.Helper()
	copied = filepath.Join(s.TempDir(), "data")
	s.Kill()
	require.NoError(s, s.machine.save(s.Context(), copied))
	s.Restart()
	return copied
}

// Restore kills the server and starts it on the data of a snapshot, or on none at
// all if that is "".
func (s server) Restore(copied string) {
	s.Helper()
	s.Kill()
	require.NoError(s, s.machine.load(s.Context(), copied))
	s.Restart()
}
