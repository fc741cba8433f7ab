package demo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/demo"
	"github.com/go-fencing/fencing/internal/localserver"
)

var errNoServer = errors.New("initdb: could not create\nshared memory segment")

// TestMain makes the test binary, started again, a worker. No test here starts a
// server: this is a machine with nothing but Go.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && strings.HasSuffix(os.Args[1], "-worker") {
		var orders io.Reader = os.Stdin
		var replies io.Writer = os.Stdout
		switch os.Args[1] {
		case "careless-worker":
			orders = careless(os.Stdin)
		case "late-worker", "always-late-worker":
			orders, replies = late(os.Stdin, os.Stdout, os.Args[1] == "late-worker")
		}
		if err := demo.Work(context.Background(), orders, replies); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	demo.StartPostgres(func(context.Context, localserver.PostgresOptions) (*localserver.Postgres, error) {
		if os.Getenv("DEMO_TEST_BROKEN_POSTGRES") != "" {
			return nil, errNoServer
		}
		return nil, fmt.Errorf("localserver: PostgreSQL is %w", localserver.ErrNotInstalled)
	})
	os.Exit(m.Run())
}

// careless takes the guard out of every order.
func careless(orders io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		var line []byte
		for b := make([]byte, 1); ; {
			if _, err := orders.Read(b); err != nil {
				_ = w.CloseWithError(err)
				return
			}
			if line = append(line, b...); b[0] != '\n' {
				continue
			}
			_, _ = w.Write(bytes.ReplaceAll(line, []byte(`"guarded":true`), []byte(`"guarded":false`)))
			line = nil
		}
	}()
	return r
}

func play(t *testing.T, o demo.Options, worker string) (demo.Verdict, string, error) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	o.Worker, o.Fast = []string{program, worker}, true
	var out bytes.Buffer
	v, err := demo.Run(t.Context(), o, demo.NewTimeline(&out, demo.Style{}))
	return v, out.String(), err
}

// S1 is act 2, S2 is act 3, S13 is act 4.
func TestS1_S2_S13_WithoutPostgresTheDemoPlaysOnSQLite(t *testing.T) {
	t.Parallel()
	v, out, err := play(t, demo.Options{}, "demo-worker")
	require.NoError(t, err, out)
	require.True(t, v.OK, out)
	require.Equal(t, "the lock alone lost 50 of 80 sold, the fence none; 3 stale writes refused", v.Text)
	require.Contains(t, out, "in a file of its own (PostgreSQL is not installed)")
	require.Contains(t, out, "refused by SQLite")
	require.Contains(t, out, "takes Redis' counter past the fence in SQLite")
	require.NotContains(t, strings.ReplaceAll(out, "(PostgreSQL is not installed)", ""), "Postgres")
}

func TestPostgresThatWasAskedForIsNotReplaced(t *testing.T) {
	t.Parallel()
	_, out, err := play(t, demo.Options{Store: demo.Postgres}, "demo-worker")
	require.ErrorIs(t, err, localserver.ErrNotInstalled)
	require.Empty(t, out)
}

// The verdict on SQLite can be a bad one, too: it asks for refusals and for a
// stock that adds up.
func TestAGuardThatIsNotUsedIsFoundOutOnSQLite(t *testing.T) {
	t.Parallel()
	v, out, err := play(t, demo.Options{Store: demo.SQLite}, "careless-worker")
	require.NoError(t, err, out)
	require.False(t, v.OK)
	require.Contains(t, v.Text, "act 2 is NOT clean although it was guarded")
}

func TestAPostgresThatDoesNotStartIsReplacedToo(t *testing.T) {
	t.Setenv("DEMO_TEST_BROKEN_POSTGRES", "1")
	v, out, err := play(t, demo.Options{}, "demo-worker")
	require.NoError(t, err, out)
	require.True(t, v.OK, out)
	require.Contains(t, out, "(PostgreSQL cannot be started: initdb: could not create; shared memory segment)")
}

func TestParseStore(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "postgres", "sqlite"} {
		s, err := demo.ParseStore(name)
		require.NoError(t, err)
		require.Equal(t, name, string(s))
	}
	for _, name := range []string{"Postgres", "sqlite3", "oracle", " "} {
		_, err := demo.ParseStore(name)
		require.ErrorContains(t, err, fmt.Sprintf("%q is no store", name))
	}
}
