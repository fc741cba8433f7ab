package model_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/integration/model"
)

var update = flag.Bool("update", false, "write the histories in testdata anew")

// The bounds of the proof. With more there are millions of states.
var bounds = []model.Bounds{
	{Clients: 2, Acquisitions: 1, Tokens: 4},
	{Clients: 2, Acquisitions: 2, Tokens: 3},
	{Clients: 3, Acquisitions: 1, Tokens: 3},
}

func TestTheTrueRulesHoldInEveryInterleaving(t *testing.T) {
	t.Parallel()
	for _, b := range bounds {
		r := model.Model{Rules: model.True(), Bounds: b}.Run()
		t.Logf("%d clients with %d acquisitions each, tokens up to %d: %d states, %d steps, depth %d", b.Clients, b.Acquisitions, b.Tokens, r.States, r.Steps, r.Depth)
		if r.Violation != nil {
			t.Errorf("%v:\n%s", r.Violation, printed(t, r))
		}
		require.Greater(t, r.States, 10_000, "the model has hardly any states, so it shows nothing")
	}
}

// A model in which nothing can go wrong would be clean, too.
func TestBrokenRulesFailWithAHistory(t *testing.T) {
	t.Parallel()
	for _, rules := range model.Broken() {
		t.Run(rules.Name, func(t *testing.T) {
			t.Parallel()
			r := model.Model{Rules: rules, Bounds: model.Bounds{Clients: 2, Acquisitions: 2, Tokens: 3}}.Run()
			want := model.ErrLostUpdate
			if rules.Name == "no repair" {
				want = model.ErrStuck
			}
			require.ErrorIs(t, r.Violation, want, "%d states were visited", r.States)
			text := "Looks good because: " + rules.Why + ".\n\n" + printed(t, r)
			t.Logf("after %d states:\n%s", r.States, text)
			golden(t, rules.Name, text)
		})
	}
}

func printed(t *testing.T, r model.Result[model.State]) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, model.Print(&b, r))
	return b.String()
}

// golden compares with testdata, where people can read the histories.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) //nolint:gosec // it is to be read
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "another history; if it is as good, run the test with -update")
}
