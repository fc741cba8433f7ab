package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	mutants "github.com/go-fencing/fencing/scripts/mutants"
)

// The code moves on; a mutant of a text that is gone checks nothing.
func TestEveryMutantStillChangesSomething(t *testing.T) {
	t.Parallel()
	require.Empty(t, mutants.ApplyAll(func(file string) (string, error) {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		return string(text), err
	}))
	require.NotEmpty(t, mutants.ApplyAll(func(string) (string, error) { return "", nil }))
}

func TestFailuresAreNamed(t *testing.T) {
	t.Parallel()
	out := "--- FAIL: TestB (0.1s)\n    --- FAIL: TestB/sub (0.1s)\n--- PASS: TestC (0s)\n--- FAIL: TestA (0s)\nFAIL\n"
	require.Equal(t, []string{"TestA", "TestB"}, mutants.Failures(out))
	require.Equal(t, []string{"a test that does not end by itself"}, mutants.Failures("panic: test timed out after 2m0s"))
}
