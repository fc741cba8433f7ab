package main_test

import (
	"bufio"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

func TestAnInterruptedDemoLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal os.Signal
		own    bool
		until  string
		store  string
	}{
		"Ctrl-C while a worker is frozen":      {syscall.SIGINT, true, `"frozen"`, "--store=postgres"},
		"termination while a worker is frozen": {syscall.SIGTERM, false, `"frozen"`, ""},
		"hang-up in the first act":             {syscall.SIGHUP, false, `"act":1`, ""},
		"Ctrl-C after Redis forgot":            {syscall.SIGINT, false, `"forgot"`, ""},
		"Ctrl-C with the stock in SQLite":      {syscall.SIGINT, true, `"frozen"`, "--store=sqlite"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tmp := newStage(t), newTempDir(t)
			args := []string{"demo", "--json", "--redis", s.redis}
			if !c.own {
				args = append(args, "--postgres", s.db.url)
			}
			if c.store != "" {
				args = append(args, c.store)
			}
			cmd := call{args: args, env: []string{"TMPDIR=" + tmp}}.command(t)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			seen, sent := "", false
			for out := bufio.NewScanner(stdout); out.Scan(); {
				seen += out.Text() + "\n"
				if !sent && strings.Contains(out.Text(), c.until) {
					require.NoError(t, cmd.Process.Signal(c.signal))
					sent = true
				}
			}
			require.Error(t, cmd.Wait())
			require.Equal(t, 130, cmd.ProcessState.ExitCode(), stderr.String())
			require.True(t, sent, seen)
			require.NotContains(t, seen, "verdict")
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
			s.requireUntouched(t, result{stdout: seen})
			requireGone(t, tmp, "TMPDIR="+tmp)
		})
	}
}

// Nobody could end the workers then, and one of them is frozen.
func TestAKilledDemoLeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	s, marker := newStage(t), "FENCECTL_TEST_MARKER="+t.Name()
	cmd := call{args: []string{"demo", "--json", "--postgres", s.db.url}, env: []string{marker}}.command(t)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for out := bufio.NewScanner(stdout); out.Scan(); {
		if strings.Contains(out.Text(), `"frozen"`) {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return len(processes(t, marker)) == 0 }, waiting, polling, "processes are left")
}

func TestADemoThatNobodyReadsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s, tmp := newStage(t), newTempDir(t)
	cmd := call{args: []string{"demo", "--json", "--redis", s.redis}, env: []string{"TMPDIR=" + tmp}}.command(t)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, stdout.Close())
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
	s.requireUntouched(t, result{stdout: first})
	requireGone(t, tmp, "TMPDIR="+tmp)
}

func TestADemoWhoseServerDiesSaysSo(t *testing.T) {
	t.Parallel()
	server := servertest.NewPostgres(t, localserver.PostgresOptions{})
	cmd := call{args: []string{"demo", "--json", "--postgres", server.URL("")}}.command(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for out := bufio.NewScanner(stdout); out.Scan(); {
		if strings.Contains(out.Text(), `"frozen"`) && server.PID() != 0 {
			require.NoError(t, server.Kill())
		}
	}
	require.Error(t, cmd.Wait())
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), stderr.String())
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	require.Contains(t, stderr.String(), "fencectl: demo: not played to its end: act 1: worker B cannot read")
	require.Contains(t, stderr.String(), "may be left in the database")
}
