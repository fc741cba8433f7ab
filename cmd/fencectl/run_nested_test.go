package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
)

// inside is a shell's command line for "fencectl run" with its arguments, and the
// environment that finds the servers.
func inside(t *testing.T, args ...string) string {
	t.Helper()
	program, err := built()
	require.NoError(t, err)
	return program + " run " + strings.Join(args, " ")
}

func TestRunInsideOfRunJoinsTheLock(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	const show = `sh -c 'echo "$FENCING_FENCE"'`
	for name, servers := range map[string][]string{
		"in Postgres": {"--postgres", db.url},
		"in Redis":    {"--postgres", db.url, "--redis", servertest.NewRedis(t, localserver.RedisOptions{}).URL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with := strings.Join(servers, " ")
			a, b := "a;%"+name, "b"+name // the text of a fence escapes what is in its way
			inner := inside(t, "'"+a+"'", with, "-- "+show)
			// Beside each other, and with another lock in between.
			j := start(t, append([]string{a}, append(servers, "--", "sh", "-c",
				show+"; "+inner+"; "+inner+"; "+inside(t, "'"+b+"'", with, "-- sh -c", `"`+strings.NewReplacer(`"`, `\"`, "$", `\$`).Replace(show+"; "+inner)+`"`)+"; "+show)...)...)
			require.Equal(t, 0, j.end(), j.stderr.String())
			fences := strings.Fields(j.stdout.String())
			require.Len(t, fences, 6, j.stdout.String())
			for i, text := range fences {
				if i != 3 {
					require.Equal(t, fences[0], text, i)
				}
			}
			var f guard.Fence
			require.NoError(t, f.UnmarshalText([]byte(fences[3])))
			require.Equal(t, b, f.Resource)
			for _, resource := range []string{a, b} {
				require.Equal(t, 0, start(t, append([]string{resource, "--wait=0s"}, append(servers, "--", "true")...)...).end(), "the lock is free again")
			}
		})
	}
}

// The lock belongs to both: the outer one may be the first to end.
func TestRunThatHasJoinedKeepsTheLock(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	pg := "--postgres=" + db.url
	dir := t.TempDir()
	started, goOn := filepath.Join(dir, "started"), filepath.Join(dir, "go")
	j := start(t, "r", pg, "--", "sh", "-c", inside(t, "r", pg, "-- sh -c '"+untilTold+"'", started, goOn)+" >/dev/null 2>&1 & while [ ! -s "+started+" ]; do sleep 0.02; done")
	require.Equal(t, 0, j.end(), j.stderr.String())
	appears(t, started)
	require.Contains(t, fails(t, 1, "held by", "run", "r", pg, "--wait=0s", "--", "true").stderr, "r")
	next := start(t, "r", pg, "--wait=1m", "--", "true")
	require.NoError(t, os.WriteFile(goOn, nil, 0o600))
	require.Equal(t, 0, next.end(), next.stderr.String())
}

// The job that "at" or a daemon starts has the environment of a run that is over.
func TestRunSaysAtOnceThatTheLockOfItsEnvironmentIsGone(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	pg := "--postgres=" + db.url
	j := start(t, "r", pg, "--", "sh", "-c", `echo "$FENCING_FENCE"; echo "$FENCING_NONCE"`)
	require.Equal(t, 0, j.end())
	lines := strings.Fields(j.stdout.String())
	for _, name := range []string{"FENCING_FENCE", "FENCING_FENCES"} {
		r := call{args: []string{"run", "r", pg, "--", "echo", "never"}, env: []string{name + "=" + lines[0]}}.run(t)
		require.Equal(t, 1, r.code, r.stderr)
		require.Empty(t, r.stdout)
		require.Contains(t, r.stderr, `that this runs under "r" with token`)
		require.Contains(t, r.stderr, "env -u FENCING_FENCES -u FENCING_FENCE")
		require.NotContains(t, r.stderr, lines[1], "the nonce")
		r = call{args: []string{"run", "another", pg, "--", "true"}, env: []string{name + "=" + lines[0]}}.run(t)
		require.Equal(t, 0, r.code, r.stderr)
		r = call{args: []string{"run", "r", pg, "--", "true"}, env: []string{name + "=r;1;secret"}}.run(t)
		require.Equal(t, 2, r.code)
		require.Contains(t, r.stderr, "$"+name+" has something that is no fence")
		require.NotContains(t, r.stderr, "secret")
	}
}

func TestRunAfterAnInterruptHasTheExitCodeThatTheCommandGave(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	pg := "--postgres=" + db.url
	for script, code := range map[string]int{
		"trap 'exit 7' TERM; ": 7,
		"trap 'exit 0' TERM; ": 0,
		"":                     130, // the signal has ended it
	} {
		path := filepath.Join(t.TempDir(), "started")
		j := start(t, "r "+script, pg, "--", "sh", "-c", script+"echo $$ >"+path+"; while :; do sleep 0.02; done")
		appears(t, path)
		require.NoError(t, j.process.Signal(syscall.SIGINT))
		require.Equal(t, code, j.end(), "%s: %s", script, j.stderr.String())
	}
	// Whoever only waits has no command yet.
	path := filepath.Join(t.TempDir(), "started")
	holder := start(t, "r", pg, "--", "sh", "-c", "echo $$ >"+path+"; exec sleep 600")
	appears(t, path)
	const sessions = "select count(*)::text from pg_stat_activity where application_name = 'fencectl' and datname = current_database()"
	before := db.query(t, sessions)
	waiter := start(t, "r", pg, "--", "true")
	require.Eventually(t, func() bool { return db.query(t, sessions) > before }, time.Minute, 10*time.Millisecond)
	require.NoError(t, waiter.process.Signal(syscall.SIGINT))
	require.Equal(t, 130, waiter.end())
	require.NoError(t, holder.process.Signal(syscall.SIGTERM))
	require.Equal(t, 130, holder.end())
}
