package fencing_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example of the README is examples/quickstart, which the compiler checks.
func TestREADMEExampleIsTheQuickstart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	quickstart, err := os.ReadFile("examples/quickstart/main.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found, "the README has no Go example")
	example, _, _ := strings.Cut(rest, "```")
	_, program, _ := strings.Cut(string(quickstart), "package main")
	require.Equal(t, "package main"+program, example, "copy examples/quickstart/main.go into the README")
	require.LessOrEqual(t, strings.Count(example, "\n")-strings.Count(example, "\n\n")-strings.Count(example, "\t\"")-2, 30, "lines of the example, imports aside")
}
