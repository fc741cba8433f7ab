package stack_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/stack"
)

// again runs this test binary again, with one test or none.
func again(t *testing.T, test string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func TestDeafEngineDoesNotHangTheTests(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, deaf.Close()) }()
	engine := "DOCKER_HOST=tcp://" + deaf.Addr().String()

	out, err := again(t, "", engine, stack.ServersEnv+"=containers").CombinedOutput()
	require.Error(t, err, "containers were demanded")
	require.Contains(t, string(out), "servers: none: ")

	out, err = again(t, "", engine, stack.ServersEnv+"=", "CI=").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^servers: (local processes \(.*\); no containers: |none, )`, string(out))
}

func TestUnknownKindOfServersIsRefused(t *testing.T) {
	t.Parallel()
	out, err := again(t, "", stack.ServersEnv+"=teapots").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `"teapots" is neither containers nor processes`)
}

// hangEnv lets TestHangs hang.
const hangEnv = "FENCING_TEST_HANG"

func TestHangs(t *testing.T) {
	if os.Getenv(hangEnv) == "" {
		return // it is no test by itself
	}
	r := stack.NewRedis(t)
	fmt.Println("running", stack.ContainerOf(r), r.Addr())
	select {}
}

func TestNothingIsLeftOfTestsThatWereKilled(t *testing.T) {
	t.Parallel()
	probe := stack.NewRedis(t)
	// The folders of local servers are all that may stay, so let them be here.
	dir, err := os.MkdirTemp("", "fencing-hangs-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755)) // the servers may run as another user
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, time.Minute, 50*time.Millisecond)
	})
	cmd := again(t, "TestHangs", hangEnv+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var container, addr string
	for lines := bufio.NewScanner(out); container == "" && lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "running "); found {
			container, addr, _ = strings.Cut(rest, " ")
			break
		}
	}
	require.NotEmpty(t, addr)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = c.Close()
			return false
		}
		return stack.ContainerOf(probe) == "" || !stack.ContainerExists(container)
	}, time.Minute, 50*time.Millisecond)
}
