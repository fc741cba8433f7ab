package objectguard_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
)

// childEnv makes the test binary a process that counts in an object of that directory,
// under the fence of another variable.
const childEnv = "OBJECTGUARD_TEST_CHILD_DIR"

const rounds = 40

func child(dir string) int {
	var f guard.Fence
	err := f.UnmarshalText([]byte(os.Getenv(childEnv + "_FENCE")))
	if err == nil {
		err = count(dir, f)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func count(dir string, f guard.Fence) error {
	d, err := objectguard.NewDir(dir)
	if err != nil {
		return err
	}
	g, err := objectguard.New(d)
	if err != nil {
		return err
	}
	for range rounds {
		if err := g.Update(guard.NewContext(context.Background(), f), f.Resource, increment); err != nil {
			return err
		}
	}
	return nil
}

func increment(old []byte) ([]byte, error) {
	n := 0
	if old != nil {
		var err error
		if n, err = strconv.Atoi(string(old)); err != nil {
			return nil, err
		}
	}
	return strconv.AppendInt(nil, int64(n+1), 10), nil
}

func counter(t *testing.T, dir string, f guard.Fence) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := f.MarshalText()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+dir, childEnv+"_FENCE="+string(text))
	return cmd
}

func TestProcessesCountTogether(t *testing.T) {
	t.Parallel()
	d, dir := dirAt(t)
	g := open(t, d)
	ctx, f := raised(t, g, "counter", 33, "A")
	outs := make(chan string)
	const processes = 4
	for range processes {
		cmd := counter(t, dir, f)
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				out = append(out, err.Error()...)
			}
			outs <- string(out)
		}()
	}
	for range processes {
		require.Empty(t, <-outs)
	}
	data, err := g.Read(ctx, "counter")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(processes*rounds), string(data))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no drafts and no lock files")
}

// S6: a process is killed in the middle of its writes. The object is whole, and the
// next fence stops what may be left of it.
func TestS6_AKilledProcessLeavesAWholeObject(t *testing.T) {
	t.Parallel()
	d, dir := dirAt(t)
	g := open(t, d)
	token := guard.Token(32)
	var last int
	for range 5 {
		token++
		ctx, f := raised(t, g, "counter", token, "A")
		cmd := counter(t, dir, f)
		require.NoError(t, cmd.Start())
		read := func() int {
			data, err := g.Read(ctx, "counter")
			require.NoError(t, err)
			n, err := strconv.Atoi("0" + string(data))
			require.NoError(t, err)
			return n
		}
		require.Eventually(t, func() bool { return read() > last+3 }, time.Minute, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed, or had just ended
		require.GreaterOrEqual(t, read(), last)
		last = read()
	}
}

// Another process has stopped in the middle of replacing an object: nobody hangs.
func TestAFileThatIsLockedForEverBlocksTheRaise(t *testing.T) {
	t.Parallel()
	d, dir := dirAt(t)
	g := open(t, d)
	_, f := raised(t, g, "r", 33, "A")
	unlock := lockObject(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, g.Raise(ctx, fence("r", 34, "B")), context.DeadlineExceeded)
	require.NoError(t, g.Raise(t.Context(), f), "it is the current one, and there is nothing to write")
	unlock()
	require.NoError(t, g.Raise(t.Context(), fence("r", 35, "B")))
}

func dirAt(t *testing.T) (d *objectguard.Dir, dir string) {
	t.Helper()
	dir = t.TempDir()
	d, err := objectguard.NewDir(dir)
	require.NoError(t, err)
	return d, dir
}

// objectFile returns the path of the only object in dir.
func objectFile(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.True(t, strings.HasSuffix(entries[0].Name(), ".object"))
	return dir + "/" + entries[0].Name()
}
