package main_test

import (
	"bufio"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// In a container whose first process is a shell nothing hangs up a group of frozen
// processes when their parent is killed.
func TestAKilledDemoInAContainerLeavesNoProcessBehind(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may make a namespace")
	}
	s, marker := newStage(t), "FENCECTL_TEST_MARKER="+t.Name()
	demo := call{args: []string{"demo", "--json", "--postgres", s.db.url}, env: []string{marker}}.command(t)
	cmd := call{program: "/bin/sh", args: []string{"-c", `"$@" & read frozen; kill -9 $!; read checked`, "sh"}, env: demo.Env}.command(t)
	cmd.Args = append(cmd.Args, demo.Args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for out := bufio.NewScanner(stdout); out.Scan(); {
		if strings.Contains(out.Text(), `"frozen"`) {
			break
		}
	}
	require.Greater(t, len(processes(t, marker)), 2)
	_, err = stdin.Write([]byte("\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(processes(t, marker)) == 1 }, waiting, polling, "there is more than the shell")
	require.NoError(t, stdin.Close())
	_ = cmd.Wait() // of read at the end of its input
}
