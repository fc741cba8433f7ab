package model_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpinFindsNoLostUpdate(t *testing.T) {
	t.Parallel()
	s := newSpin(t)
	says := s.verify("")
	require.Regexp(t, `errors: 0\b`, says)
	require.NotContains(t, says, "max search depth too small", "some states were not visited")
	require.Regexp(t, `[1-9][0-9]{4,} states, stored`, says, "hardly any states, so this shows nothing")
	t.Log(regexp.MustCompile(`(?m)^.* states, stored$`).FindString(says))
}

func TestSpinFindsALostUpdateUnderBrokenRules(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"NO_RAISE", "GE", "NO_NONCE", "UNLOCKED", "RELEASE"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			s := newSpin(t)
			require.Contains(t, s.verify("-D"+broken), "assertion violated (value==commits)")
			t.Log(s.run("spin", "-t", "-p", "-D"+broken, "fencing.pml"))
		})
	}
}

// spin runs commands in a folder with the Promela text.
type spin struct {
	*testing.T
	dir string
}

func newSpin(t *testing.T) spin {
	t.Helper()
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "true" {
				t.Skipf("%v; scripts/deps installs it", err)
			}
			require.NoError(t, err, "scripts/deps installs it")
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "fencing.pml"))
	require.NoError(t, err)
	s := spin{t, t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "fencing.pml"), text, 0o600))
	return s
}

// verify explores all states and returns what the verifier says.
func (s spin) verify(option string) string {
	s.Helper()
	args := []string{"-a", "fencing.pml"}
	if option != "" {
		args = append([]string{option}, args...)
	}
	s.run("spin", args...)
	s.run("cc", "-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c")
	return s.run("./pan", "-m20000")
}

func (s spin) run(name string, args ...string) string {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), name, args...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	require.NoError(s, err, "%s %q: %s", name, args, out)
	return string(out)
}
