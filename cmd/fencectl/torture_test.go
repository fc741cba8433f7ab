package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
)

// A tortured is what "torture --json" writes.
type tortured struct {
	Seed      string
	Servers   []string
	LeftOut   []string `json:"left_out"`
	Variants  []tortureVerdict
	Witnesses map[string]int
	Faults    map[string]int

	Clean, Trustworthy bool
	Doubts             []string
}

type tortureVerdict struct {
	Variant    string
	Control    bool
	Operations int
	Committed  int
	Anomalies  map[string]int
	Violations []struct{ Kind, Text string }
}

// torture runs it in a temporary folder, of which nothing must be left; a result is
// on stdout whatever the exit code.
func torture(t *testing.T, c call) (r result, got tortured) {
	t.Helper()
	tmp := newTempDir(t)
	c.args = append([]string{"torture", "--json"}, c.args...)
	c.env = append(c.env, "TMPDIR="+tmp)
	cmd := c.command(t)
	cmd.Dir = t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err)
	}
	r = result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	t.Log(r.stderr)
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &got), "%d: %s%s", r.code, r.stdout, r.stderr)
	requireGone(t, tmp, "TMPDIR="+tmp)
	return r, got
}

var tortureControls = []string{"no guard", "row rule only", "plain SELECT check", ">= at the raise", "bsm/redislock alone"}

// requireClean checks a run that went well: the guards came out clean, and of the
// same faults every control broke.
func requireClean(t *testing.T, r result, got tortured) {
	t.Helper()
	require.Equal(t, 0, r.code, "%s%s", r.stdout, r.stderr)
	require.True(t, got.Clean)
	require.True(t, got.Trustworthy, got.Doubts)
	var guarded, controls []string
	for _, v := range got.Variants {
		require.NotZero(t, v.Committed, v.Variant)
		if v.Control {
			controls = append(controls, v.Variant)
			require.NotZero(t, v.Anomalies["lost update"], v.Variant)
			continue
		}
		guarded = append(guarded, v.Variant)
		require.Empty(t, v.Anomalies, "%v", v.Violations)
	}
	require.Equal(t, []string{"pgguard", "sqlguard", "gormguard"}, guarded)
	require.Equal(t, tortureControls, controls)
	for _, w := range []string{"regressions", "duplicate tokens", "fenced writes", "blocked raises", "ambiguous commits"} {
		require.NotZero(t, got.Witnesses[w], w)
	}
	t.Logf("seed %s: faults %v, witnesses %v", got.Seed, got.Faults, got.Witnesses)
}

// The torture that CI runs. A seed that has found something is to stay in this list.
func TestTorture(t *testing.T) {
	t.Parallel()
	servertest.Postgres(t)
	servertest.Redis(t)
	for _, seed := range []string{"1", "2"} {
		t.Run("seed "+seed, func(t *testing.T) { // one after the other: they keep the machine busy
			out := t.TempDir()
			r, got := torture(t, call{args: []string{"--seconds", "20", "--seed", seed, "--out", out}})
			requireClean(t, r, got)
			require.Equal(t, seed, got.Seed)
			for _, f := range []string{"frozen", "killed", "cut off", "reply lost", "terminate", "flush", "snapshot", "promote", "crash"} {
				require.NotZero(t, got.Faults[f], f)
			}
			page, err := os.ReadFile(filepath.Join(out, "history.html"))
			require.NoError(t, err)
			for _, says := range []string{"<svg", "pgguard:0", `class="refused"`, `class="overwritten"`, `class="frozen"`, `class="strike"`} {
				require.Contains(t, string(page), says)
			}
			drawn, err := filepath.Glob(filepath.Join(out, "porcupine-*.html"))
			require.NoError(t, err)
			require.NotEmpty(t, drawn, "porcupine sees the controls break as well")
		})
	}
}

func TestTortureOnTheServersOfTheUser(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	calls, out := commandCalls(t, s.rdb), t.TempDir()
	address, err := url.Parse(s.db.url)
	require.NoError(t, err)
	if _, has := address.User.Password(); !has { // a server that trusts everybody takes any
		address.User = url.UserPassword(address.User.Username(), half1+half2)
	}
	r, got := torture(t, call{args: []string{"--seconds", "15", "--seed", "3", "--out", out, "--redis", s.redis}, env: []string{"FENCING_POSTGRES_URL=" + address.String()}})
	requireClean(t, r, got)
	requireSecret(t, r, "a torture")
	for _, name := range []string{"history.html", "reports.jsonl"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		require.NotContains(t, string(text), half1, name)
	}
	require.Equal(t, []string{"flush", "snapshot", "promote", "crash", "clock"}, got.LeftOut)
	require.Equal(t, calls, commandCalls(t, s.rdb), "no FLUSHALL, no FLUSHDB on a server of others")
	require.Equal(t, s.before, s.db.schemas(t))
	kept, err := s.rdb.Get(t.Context(), "theirs:"+t.Name()).Result()
	require.NoError(t, err)
	require.Equal(t, "kept", kept)
	left, err := s.rdb.Keys(t.Context(), "fencectl_torture_*").Result()
	require.NoError(t, err)
	require.Empty(t, left)
}

// A run whose controls come out whole shows nothing.
func TestTortureWithoutFaultsIsNotTrusted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, got := torture(t, call{args: []string{"--seconds", "1", "--faults", "none", "--redis", s.redis, "--postgres", s.db.url}})
	require.Equal(t, 2, r.code, "%s%s", r.stdout, r.stderr)
	require.True(t, got.Clean)
	require.False(t, got.Trustworthy)
	for _, name := range tortureControls {
		require.Contains(t, strings.Join(got.Doubts, "\n"), `the control "`+name+`" lost no update`)
	}
	require.Contains(t, got.Doubts, "no blocked raises were seen")
	require.Empty(t, got.Faults)
}

// A guard that lets everyone in must be found out.
func TestTortureFindsAGuardThatLetsStaleWritesIn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.db.exec(t, `CREATE FUNCTION sabotage() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE r record;
		BEGIN
			FOR r IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_identity ~ '\.enter\(' LOOP
				IF current_setting('sabotage.done', true) IS DISTINCT FROM 'yes' THEN
					PERFORM set_config('sabotage.done', 'yes', true);
					EXECUTE format('CREATE OR REPLACE FUNCTION %I.enter(p_resource text, p_token bigint, p_nonce text, p_idle_timeout integer DEFAULT NULL)
						RETURNS void LANGUAGE sql AS ''SELECT''', r.schema_name);
				END IF;
			END LOOP;
		END $$;
		CREATE EVENT TRIGGER sabotage ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION') EXECUTE FUNCTION sabotage()`)
	out := t.TempDir()
	r, got := torture(t, call{args: []string{"--seconds", "12", "--faults", "pause", "--out", out, "--redis", s.redis, "--postgres", s.db.url}})
	require.Equal(t, 1, r.code, "%s%s", r.stdout, r.stderr)
	require.False(t, got.Clean)
	for _, v := range got.Variants {
		if !v.Control {
			for _, kind := range []string{"lost update", "token order", "commit log", "linearization"} {
				require.NotZero(t, v.Anomalies[kind], "%s: %s is not seen; %v", v.Variant, kind, v.Violations)
			}
			drawn, err := filepath.Glob(filepath.Join(out, "porcupine-"+v.Variant+"-*.html"))
			require.NoError(t, err)
			require.NotEmpty(t, drawn)
		}
	}
}

func TestTortureRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	fails(t, 2, "--seconds 0: not from 1 to 86400", "torture", "--seconds=0")
	fails(t, 2, `--seed "x": no whole number`, "torture", "--seed=x")
	fails(t, 2, `--faults: "fire" is no fault; name some of pause, kill, cut,`, "torture", "--faults=pause,fire")
	fails(t, 2, "--schema: the torture makes a fence schema of its own", "torture", "--schema=x")
	fails(t, 2, "is a socket, and the torture cuts links: name the server by host and port", "torture", "--redis=unix:///run/redis.sock")
	fails(t, 2, "is a socket, and the torture cuts links", "torture", "--postgres=host=/run/postgresql dbname=shop")
	fails(t, 2, "--out: ", "torture", "--out=/dev/null/x")
	fails(t, 3, "connection refused", "torture", "--redis=redis://:"+half1+half2+"@127.0.0.1:1")
	fails(t, 2, `this command is for "fencectl torture" alone`, "torture-worker")
	require.NotContains(t, ok(t, "--help"), "torture-worker")
}

func TestAnInterruptedTortureLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"private servers": true, "servers of the user": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tmp := newStage(t), newTempDir(t)
			args := []string{"torture", "--seconds", "60"}
			if !own {
				args = append(args, "--redis", s.redis, "--postgres", s.db.url)
			}
			cmd := call{args: args, env: []string{"TMPDIR=" + tmp}}.command(t)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewReader(stderr)
			progress, err := lines.ReadString('\n')
			require.NoError(t, err, progress)
			require.Regexp(t, "^torturing .*: [1-9][0-9]* operations, ", progress, "it is in the middle of it")
			const workers = 3*3 + 2*5
			require.Eventually(t, func() bool { return len(processes(t, "TMPDIR="+tmp)) > workers }, waiting, polling)
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			require.Error(t, cmd.Wait())
			require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", rest)
			require.Empty(t, stdout.String())
			require.Equal(t, s.before, s.db.schemas(t))
			requireGone(t, tmp, "TMPDIR="+tmp)
		})
	}
}
