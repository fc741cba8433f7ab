package interleavings_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/interleavings"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
)

var update = flag.Bool("update", false, "write what came of the scenarios into testdata anew")

func TestMain(m *testing.M) { servertest.Main(m) }

func newPlayer(t *testing.T) *interleavings.Player {
	t.Helper()
	url := servertest.Postgres(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.NoError(t, migrations.Up(t.Context(), conn))
	protect, _, err := migrations.Protect("guarded", migrations.ProtectOptions{Trigger: true, Resource: "k"})
	require.NoError(t, err)
	p, err := interleavings.NewPlayer(t.Context(), url, protect)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// Each scenario of testdata in each of its modes and levels: what happened is what is
// written there, the shipped modes let nothing through, and some other mode does.
func TestS1to43_Interleavings(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.Greater(t, len(files), 20)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			sc, err := interleavings.Parse(string(text))
			require.NoError(t, err)
			p := newPlayer(t)
			var results strings.Builder
			caught := false
			for _, mode := range sc.Modes {
				for _, level := range sc.Levels {
					o, err := p.Play(t.Context(), sc, mode, level, sc.Steps)
					require.NoError(t, err)
					fmt.Fprintf(&results, "%s %s: %v\n", mode.Name, level, o)
					if mode.Shipped && sc.Known == "" {
						require.Empty(t, o.Anomaly, "%s %s: %v", mode.Name, level, o)
					}
					caught = caught || o.Anomaly != ""
				}
			}
			if *update {
				head, _, _ := strings.Cut(string(text), "\n----\n")
				require.NoError(t, os.WriteFile(file, []byte(head+"\n----\n"+results.String()), 0o644)) //nolint:gosec // it is to be read
				return
			}
			require.Equal(t, sc.Results, results.String(), "another history; if it is as good, run the test with -update")
			require.Equal(t, sc.Control == "", caught, "whether some mode fails")
		})
	}
}

// orders calls play with each merge of two programs.
func orders(a, b []interleavings.Step, play func([]interleavings.Step)) {
	var merge func(done, a, b []interleavings.Step)
	merge = func(done, a, b []interleavings.Step) {
		if len(a) == 0 || len(b) == 0 {
			play(slices.Concat(done, a, b))
			return
		}
		merge(append(done, a[0]), a[1:], b)
		merge(append(done, b[0]), a, b[1:])
	}
	merge(nil, a, b)
}

// In how many of the 462 orders of two holders' steps an update is lost.
var lost = map[string]int{
	"none rc": 378, "row rc": 210, "late rc": 210, "check rc": 63,
	"gate rc": 0, "gate rr": 0, "gate ser": 0, "trigger rc": 0,
}

func TestS1to4_EveryOrderOfTwoHolders(t *testing.T) {
	t.Parallel()
	sc, err := interleavings.Parse("S1 to S4: all orders.\n\nA begin, enter, read, add 20, commit\nB raise, begin, enter, read, add 10, commit\n")
	require.NoError(t, err)
	first, err := interleavings.Parse("The first holder comes first.\n\nA raise, begin, enter, read, commit\n")
	require.NoError(t, err)
	var a, b []interleavings.Step
	for _, step := range sc.Steps {
		if step.Session == "A" {
			a = append(a, step)
			continue
		}
		b = append(b, step)
	}
	for run, want := range lost {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			name, level, _ := strings.Cut(run, " ")
			mode := interleavings.Modes[slices.IndexFunc(interleavings.Modes, func(m interleavings.Mode) bool { return m.Name == name })]
			p := newPlayer(t)
			played, got, both := 0, 0, 0
			orders(a, b, func(steps []interleavings.Step) {
				o, err := p.Play(t.Context(), sc, mode, level, append(slices.Clone(first.Steps), steps...))
				require.NoError(t, err)
				played++
				switch {
				case o.Anomaly != "":
					got++
					require.False(t, mode.Shipped, o)
				case o.Final == "130":
					both++
				}
			})
			t.Logf("%d orders: %d lost an update, in %d both were written", played, got, both)
			require.Equal(t, 462, played)
			require.Equal(t, want, got, "lost updates")
			require.Positive(t, both)
		})
	}
}
