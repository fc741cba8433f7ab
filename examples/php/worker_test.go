package php_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/examples/internal/exampletest"
	"github.com/go-fencing/fencing/examples/internal/servers"
)

// php returns the interpreter. Without it and its two drivers the test is skipped,
// or fails in CI.
func php(t *testing.T) string {
	t.Helper()
	// go test caches by what the test itself has read, and PHP is another process.
	for _, pattern := range []string{"*.php", "testdata/*", "../../docs/testdata/*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			_, err := os.ReadFile(file)
			require.NoError(t, err)
		}
	}
	path, err := exec.LookPath("php")
	if err == nil {
		err = exec.CommandContext(t.Context(), path, "-r", `exit(extension_loaded("redis") && extension_loaded("pdo_pgsql") ? 0 : 1);`).Run()
	}
	if err != nil {
		const reason = "no php with the extensions redis and pdo_pgsql: run scripts/deps"
		if os.Getenv("CI") == "true" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	return path
}

// A worker is a PHP process that does one thing at a time.
type worker struct {
	in  io.Writer
	out *bufio.Scanner
}

type command = map[string]any

type answer struct {
	OK             any
	Error, Message string
}

func start(t *testing.T, s servers.Servers, env ...string) *worker {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), php(t), "testdata/worker.php")
	cmd.Env = append(exampletest.Environment(s), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		killer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
		_ = cmd.Wait() // t.Context has ended: it may say so
	})
	return &worker{in, bufio.NewScanner(out)}
}

func (w *worker) do(t *testing.T, c command) answer {
	t.Helper()
	var a answer
	line, err := json.Marshal(c)
	require.NoError(t, err)
	_, err = w.in.Write(append(line, '\n'))
	require.NoError(t, err)
	require.True(t, w.out.Scan(), "the PHP process has ended: %v", w.out.Err())
	require.NoError(t, json.Unmarshal(w.out.Bytes(), &a), w.out.Text())
	return a
}

// must returns what a command that succeeds gives.
func (w *worker) must(t *testing.T, c command) any {
	t.Helper()
	a := w.do(t, c)
	require.Empty(t, a.Error, "%v: %s", c, a.Message)
	return a.OK
}

// fails checks the class of the exception and returns its message.
func (w *worker) fails(t *testing.T, c command, exception string) string {
	t.Helper()
	a := w.do(t, c)
	require.Equal(t, exception, a.Error, "%v: %v %s", c, a.OK, a.Message)
	return a.Message
}
