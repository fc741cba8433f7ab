package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	fencectl "github.com/go-fencing/fencing/cmd/fencectl"
	"github.com/go-fencing/fencing/internal/servertest"
)

// asProgram makes the test binary, started again, the program itself: so the demo
// runs under the race detector, in all of its processes.
const asProgram = "FENCECTL_TEST_AS_PROGRAM"

// built is the program as its users have it, for the commands that are done in one
// thread: there are hundreds of calls, and the race detector trebles the cost of each.
var built func() (program string, err error)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		fencectl.Main()
	}
	dir, err := os.MkdirTemp("", "fencectl-program-")
	if err != nil {
		panic(err)
	}
	built = sync.OnceValues(func() (string, error) {
		program := filepath.Join(dir, "fencectl.exe")
		out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return program, err
	})
	servertest.Main(m, func() error { return os.RemoveAll(dir) })
}

// A call is one run of the program.
type call struct {
	program string // by default the one that the command needs
	args    []string
	env     []string
}

type result struct {
	code           int
	stdout, stderr string
}

func (c call) command(t *testing.T) *exec.Cmd {
	t.Helper()
	program := c.program
	if program == "" {
		find := built
		if len(c.args) > 0 && (c.args[0] == "demo" || c.args[0] == "torture") {
			find = os.Executable
		}
		var err error
		program, err = find()
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, c.args...)
	// Only these: the developer's DATABASE_URL is no business of a test.
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOCOVERDIR"} {
		if value := os.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	// Under the race detector every good end would take a second.
	cmd.Env = append(append(cmd.Env, asProgram+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")), c.env...)
	return cmd
}

func (c call) run(t *testing.T) result {
	t.Helper()
	cmd := c.command(t)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err)
	}
	r := result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if r.code > 1 {
		if len(c.args) == 0 || c.args[0] != "doctor" { // which says what it has found elsewhere
			require.Empty(t, r.stdout, "%v: output together with an error", c.args)
		}
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), "%v: an error has one line: %q", c.args, r.stderr)
		require.True(t, strings.HasPrefix(r.stderr, "fencectl: "), r.stderr)
	}
	return r
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	return call{args: args}.run(t)
}

// ok runs the program, which must succeed without a word on stderr.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, args...)
	require.Equal(t, 0, r.code, "%v: %s%s", args, r.stdout, r.stderr)
	require.Empty(t, r.stderr)
	return r.stdout
}

// fails runs the program, which must end with a code and say something.
func fails(t *testing.T, code int, says string, args ...string) result {
	t.Helper()
	r := run(t, args...)
	require.Equal(t, code, r.code, "%v: %s%s", args, r.stdout, r.stderr)
	require.Contains(t, r.stdout+r.stderr, says)
	return r
}

// An exchange with a database, beside the program.
type database struct {
	url  string
	conn *pgx.Conn
}

func newDatabase(t *testing.T) database {
	t.Helper()
	return connect(t, servertest.Postgres(t))
}

func connect(t *testing.T, url string) database {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, conn.Close(ctx))
	})
	return database{url, conn}
}

func (d database) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := d.conn.Exec(t.Context(), sql)
	require.NoError(t, err, sql)
}

func (d database) query(t *testing.T, sql string) (value string) {
	t.Helper()
	require.NoError(t, d.conn.QueryRow(t.Context(), sql).Scan(&value), sql)
	return value
}

// schemas lists what the program could leave behind.
func (d database) schemas(t *testing.T) string {
	t.Helper()
	return d.query(t, "SELECT coalesce(string_agg(nspname, ' ' ORDER BY nspname), '') FROM pg_namespace WHERE nspname !~ '^pg_'")
}

// psql runs a script as a user would.
func (d database) psql(t *testing.T, script string, args ...string) {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("psql is not installed; get it with \"apt-get install postgresql-client\"")
	}
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), psql, slices.Concat([]string{"-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", d.url}, args)...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
