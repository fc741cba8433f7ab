package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

// A job is a run of "fencectl run" that goes on while the test does something else.
type job struct {
	t              *testing.T
	stdout, stderr bytes.Buffer
	process        *os.Process
	ended          chan int
}

func start(t *testing.T, args ...string) *job {
	t.Helper()
	j := &job{t: t, ended: make(chan int, 1)}
	cmd := call{args: append([]string{"run"}, args...)}.command(t)
	cmd.Stdout, cmd.Stderr = &j.stdout, &j.stderr
	require.NoError(t, cmd.Start())
	j.process = cmd.Process
	go func() {
		_ = cmd.Wait()
		j.ended <- cmd.ProcessState.ExitCode()
	}()
	return j
}

func (j *job) end() (code int) {
	j.t.Helper()
	select {
	case code = <-j.ended:
		return code
	case <-time.After(time.Minute):
		require.FailNow(j.t, "the command does not end")
		return 0
	}
}

// appears waits for a file that the command makes.
func appears(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	require.Eventually(t, func() (ok bool) { text, _ = os.ReadFile(path); return len(text) > 0 && text[len(text)-1] == '\n' }, time.Minute, 10*time.Millisecond)
	return strings.TrimSpace(string(text))
}

func migrated(t *testing.T) database {
	t.Helper()
	db := newDatabase(t)
	ok(t, "migrate", "up", "--postgres", db.url)
	return db
}

func TestRunGivesTheFenceAndPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for name, servers := range map[string][]string{
		"in Postgres": {"--postgres", db.url},
		"in Redis":    {"--postgres", db.url, "--redis", servertest.NewRedis(t, localserver.RedisOptions{}).URL()},
	} {
		resource := "nightly report; " + name
		j := start(t, append([]string{resource}, append(servers, "--", "sh", "-c", `printf '%s\n%s\n%s %s\n' "$FENCING_FENCE" "$FENCING_RESOURCE" "$FENCING_TOKEN" "$FENCING_NONCE"; exit 7`)...)...)
		require.Equal(t, 7, j.end(), j.stderr.String())
		require.Empty(t, j.stderr.String())
		lines := strings.Split(j.stdout.String(), "\n")
		var f guard.Fence
		require.NoError(t, f.UnmarshalText([]byte(lines[0])))
		require.Equal(t, resource, f.Resource)
		require.Equal(t, []string{resource, f.Token.String() + " " + f.Nonce}, lines[1:3])
		require.Equal(t, f.Token.String()+" "+f.Nonce, db.query(t, "select token || ' ' || nonce from fencing.fence where resource = '"+resource+"'"), "it is raised")
		require.Equal(t, 0, start(t, append([]string{resource, "--wait=0s"}, append(servers, "--", "true")...)...).end(), "the lock is free again")
	}
}

// What a shell script writes through psql is refused like everybody's.
func TestS1_RunRefusesTheLateWriteOfAScript(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	db.exec(t, "create table item (sku text primary key, stock int); insert into item values ('sku-42', 100)")
	dir := t.TempDir()
	started, goOn := filepath.Join(dir, "started"), filepath.Join(dir, "go")
	script := untilTold + `
		psql "$2" -v ON_ERROR_STOP=1 <<-'SQL'
			\getenv r FENCING_RESOURCE
			\getenv t FENCING_TOKEN
			\getenv n FENCING_NONCE
			BEGIN; SELECT fencing.enter(:'r', :'t', :'n'); UPDATE item SET stock = stock - 30; COMMIT;
		SQL`
	for _, late := range []bool{false, true} {
		require.NoError(t, errors.Join(os.RemoveAll(started), os.RemoveAll(goOn)))
		j := start(t, "inventory:sku-42", "--postgres", db.url, "--", "sh", "-c", strings.ReplaceAll(script, "\t", ""), started, goOn, db.url)
		appears(t, started)
		if late {
			db.exec(t, "select fencing.issue('inventory:sku-42', 'another holder')")
		}
		require.NoError(t, os.WriteFile(goOn, nil, 0o600))
		code := j.end()
		require.Equal(t, late, code != 0, "%d: %s", code, j.stderr.String())
		require.Equal(t, late, strings.Contains(j.stderr.String(), "is stale"), j.stderr.String())
		require.Equal(t, "70", db.query(t, "select stock from item"))
	}
}

// Signals that are ignored are inherited.
func TestRunChangesNoSignalOfTheCommand(t *testing.T) {
	t.Parallel()
	pg := "--postgres=" + migrated(t).url
	ignored := func(shell ...string) string {
		c := call{args: append([]string{"run", "r", pg, "--"}, "sed", "-n", "s/^SigIgn:.*\\(....\\)$/\\1/p", "/proc/self/status")}.command(t)
		c.Args = append(append(shell, c.Path), c.Args[1:]...)
		c.Path, _ = exec.LookPath(shell[0])
		out, err := c.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	require.Regexp(t, "^0...$", ignored("env"), "SIGPIPE, the 13th signal")
	require.Regexp(t, "^0..1$", ignored("nohup"), "SIGHUP, the first")
}

// A job that nohup started goes on when its terminal is closed.
func TestRunGoesOnUnderNohup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	started, goOn := filepath.Join(dir, "started"), filepath.Join(dir, "go")
	c := call{args: []string{"run", "r", "--postgres=" + migrated(t).url, "--", "sh", "-c", untilTold, started, goOn}}.command(t)
	c.Args = append([]string{"nohup", c.Path}, c.Args[1:]...)
	c.Path, _ = exec.LookPath("nohup")
	require.NoError(t, c.Start())
	appears(t, started)
	require.NoError(t, c.Process.Signal(syscall.SIGHUP))
	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	require.NoError(t, c.Wait())
}

// untilTold is a script that says that it has started, and waits until it may go on.
const untilTold = `echo $$ >"$0"; while [ ! -e "$1" ]; do sleep 0.02; done`

func TestRunWaitsAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	pg := "--postgres=" + db.url
	path := filepath.Join(t.TempDir(), "started")
	holder := start(t, "r", pg, "--", "sh", "-c", "echo $$ >"+path+"; exec sleep 600")
	appears(t, path)
	for wait, says := range map[string]string{"0s": `"r" is held by `, "200ms": `run: "r" was not free for 200ms: "r" is held by `} {
		r := run(t, "run", "r", pg, "--wait", wait, "--", "echo", "never")
		require.Equal(t, 1, r.code, r.stderr)
		require.Contains(t, r.stderr, says)
		require.Empty(t, r.stdout)
	}
	next := start(t, "r", pg, "--wait=1m", "--", "echo", "at last")
	require.NoError(t, holder.process.Signal(syscall.SIGTERM))
	require.Equal(t, 130, holder.end())
	require.Equal(t, 0, next.end(), next.stderr.String())
	require.Equal(t, "at last\n", next.stdout.String())
}

func TestRunEndsTheCommandWhoseLockIsLost(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	url := servertest.NewRedis(t, localserver.RedisOptions{}).URL()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	for name, script := range map[string]string{
		"that listens":      "trap 'exit 0' TERM; echo $$ >$0; while :; do sleep 0.05; done",
		"that does not":     "trap '' TERM; echo $$ >$0; while :; do sleep 0.05; done",
		"and what it began": "sh -c 'echo $$ >$0; while :; do sleep 0.05; done' $0 & wait",
	} {
		path := filepath.Join(t.TempDir(), "started")
		j := start(t, "r", "--postgres", db.url, "--redis", url, "--ttl=1s", "--grace=300ms", "--", "sh", "-c", script, path)
		pid := appears(t, path)
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		require.Equal(t, 1, j.end(), "%s: %s", name, j.stderr.String())
		require.Contains(t, j.stderr.String(), "lost", name)
		require.Eventually(t, func() bool { _, err := os.Stat("/proc/" + pid); return err != nil }, time.Minute, 10*time.Millisecond, "%s is still there", name)
	}
}

// What cleans up after an interrupt still has the lock.
func TestRunKeepsTheLockWhileTheCommandEnds(t *testing.T) {
	t.Parallel()
	pg := "--postgres=" + migrated(t).url
	dir := t.TempDir()
	started, goOn := filepath.Join(dir, "started"), filepath.Join(dir, "go")
	j := start(t, "r", pg, "--ttl=1s", "--grace=1m", "--", "sh", "-c", `trap 'sleep 2; echo >"$1"; exit 5' TERM; `+untilTold, started, goOn)
	appears(t, started)
	require.NoError(t, j.process.Signal(syscall.SIGTERM))
	require.Equal(t, 5, j.end(), j.stderr.String())
	require.NotContains(t, j.stderr.String(), "lost")
	require.FileExists(t, goOn)
}

// At a terminal a command can ask it for something, though its input is no terminal.
func TestRunLeavesTheTerminalToTheCommand(t *testing.T) {
	t.Parallel()
	script, err := exec.LookPath("script")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("script is not installed; get it with \"apt-get install bsdutils\"")
	}
	require.NoError(t, err)
	c := call{args: []string{"run", "r", "--postgres=" + migrated(t).url, "--", "sh", "-c", "read answer </dev/tty; test $answer = yes"}}.command(t)
	line := "'" + strings.Join(c.Args, "' '") + "' </dev/null"
	c.Path, c.Args = script, []string{"script", "-qec", line, "/dev/null"}
	c.Stdin = strings.NewReader("yes\n")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestRunWithoutADatabaseMustBeMeant(t *testing.T) {
	t.Parallel()
	url := servertest.NewRedis(t, localserver.RedisOptions{}).URL()
	fails(t, 2, "--unfenced", "run", "r", "--redis", url, "--", "true")
	fails(t, 2, "--unfenced needs --redis", "run", "r", "--unfenced", "--", "true")
	require.Equal(t, 0, start(t, "r", "--redis", url, "--unfenced", "--", "true").end())
}

func TestRunRefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	pg := "--postgres=" + db.url
	fails(t, 2, "after --, a command", "run", "r", pg)
	fails(t, 2, "after --, a command", "run")
	fails(t, 2, "control character", "run", "a\tb", pg, "--", "true")
	fails(t, 127, "no-such-program", "run", "r", pg, "--", "no-such-program")
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("text"), 0o600))
	fails(t, 126, "permission denied", "run", "r", pg, "--", plain)
	fails(t, 2, "TTL", "run", "r", pg, "--ttl=1ms", "--", "true")
	fails(t, 2, "--grace", "run", "r", pg, "--grace=-1s", "--", "true")
	fails(t, 3, "migrate up", "run", "r", "--postgres", newDatabase(t).url, "--", "true")
}
